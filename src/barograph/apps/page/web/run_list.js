// The list of runs at the side: search, sort, select and overlay.
import { sparkline } from "./charts/sparkline.js";
import { colourOf } from "./data/colours.js";
import { report } from "./data/report.js";
import { changeList, PAGE_SIZE, runs, SORTS, selectRun, shownList, toggleOverlay } from "./data/runs.js";
import { getList, getState, setState, typeState } from "./data/url_state.js";
import { openMenu } from "./run_menu.js";
import { formatNumber, formatSeconds } from "./text/format.js";
import { localized, t } from "./text/language.js";
import { seriesColour } from "./ui/colours.js";
import { cutMiddle } from "./ui/cut_text.js";
import { el, ICONS, icon } from "./ui/dom.js";
import { SYMBOLS, selectField, statusDot } from "./ui/widgets.js";

// Select the run `by` places further down the list, on the next page where this one ends.
export async function selectNeighbour(by) {
  const { keys, offset, total } = shownList();
  const current = keys.indexOf(getState("run"));
  const next = current < 0 ? 0 : current + by;
  if (next < 0 && offset > 0) await changeList({ offset: Math.max(0, offset - PAGE_SIZE) });
  else if (next >= keys.length && offset + keys.length < total) await changeList({ offset: offset + PAGE_SIZE });
  const now = shownList();
  const place = now.offset === offset ? next : by > 0 ? 0 : now.keys.length - 1;
  const key = now.keys[Math.max(0, Math.min(now.keys.length - 1, place))];
  if (key) selectRun(key);
}

export function makeSidebar() {
  const search = el("input", {
    type: "search",
    id: "run-filter",
    placeholder: t("filter_runs"),
    "aria-label": t("filter_runs"),
    value: getState("q"),
  });
  search.addEventListener("input", () => typeState("q", search.value));
  const sorts = SORTS.map((key) => [key, t(`by_${key}`)]);
  const rows = el("ul", { class: "runs" });
  const foot = el("div", { class: "runs-foot" });
  const side = el(
    "nav",
    { class: "side", "aria-label": t("list") },
    search,
    el(
      "div",
      { class: "runs-head" },
      selectField(t("sort"), sorts, getState("sort"), (sort) => setState({ sort })),
    ),
    rows,
    foot,
  );
  const draw = () => {
    if (search.value !== getState("q")) search.value = getState("q"); // after Back
    renderList(rows, foot);
  };
  return { side, draw };
}

function renderList(rows, foot) {
  const list = shownList();
  const shown = list.keys.map((key) => runs.get(key)).filter(Boolean);
  const focused = document.activeElement?.closest(".run")?.getAttribute("data-key");
  if (!list.newest) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_runs") }));
  else if (!shown.length) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_match") }));
  else rows.replaceChildren(...shown.map(runRow));
  if (rows.dataset.offset !== String(list.offset)) rows.closest(".side")?.scrollTo(0, 0);
  rows.dataset.offset = String(list.offset);
  if (focused)
    [...rows.children]
      .find((one) => one.dataset.key === focused)
      ?.querySelector(".run-name")
      ?.focus();
  foot.replaceChildren(...pager(list));
  if (list.hidden)
    foot.append(
      el("button", {
        class: "link",
        text: list.showHidden ? t("hide_again") : t("hidden_runs", { n: list.hidden }),
        onclick: () => changeList({ showHidden: !list.showHidden, offset: 0 }),
      }),
    );
}

// Which runs of how many are shown, and the buttons to the pages before and after.
function pager({ keys, offset, total }) {
  if (total <= PAGE_SIZE) return [el("span", { class: "quiet", text: t("runs_count", { n: total }) })];
  const turnTo = (label, text, to, possible) =>
    el("button", {
      class: "ghost",
      text,
      "aria-label": label,
      disabled: !possible,
      onclick: () => changeList({ offset: to }),
    });
  return [
    turnTo(t("previous_page"), "‹", offset - PAGE_SIZE, offset > 0),
    el("span", { class: "quiet", text: `${offset + 1}–${offset + keys.length} / ${total} ${t("runs")}` }),
    turnTo(t("next_page"), "›", offset + PAGE_SIZE, offset + keys.length < total),
  ];
}

// The sign of the doctor's verdict; faint where the run has gone on since.
function healthSign(health) {
  if (!health) return null;
  const { word, step, is_current, first } = health;
  const about = [t(`health_${word}`), first && localized(first.title), is_current ? "" : t("as_of_step", { n: step })];
  const text = about.filter(Boolean).join(" · ");
  return el("span", {
    class: `health ${word}${is_current ? "" : " old"}`,
    text: SYMBOLS[word],
    title: text,
    "aria-label": text,
  });
}

// The most important finding.
function troubleLine(health) {
  if (!health?.first) return null;
  const text = `${localized(health.first.title)} · ${t("since_step", { n: health.first.onset })}`;
  return el("span", { class: `run-note trouble-note ${health.word}${health.is_current ? "" : " old"}`, text });
}

function runRow(run) {
  const current = run.key === getState("run");
  const overlaid = getList("with").includes(run.key);
  const box = el("button", {
    class: "box",
    "aria-pressed": current || overlaid,
    title: t("overlay"),
    "aria-label": `${t("overlay")}: ${run.name}`,
    style: { "--c": seriesColour(colourOf(run.key)) },
    onclick: () => toggleOverlay(run.key),
  });
  const facts = [
    run.status === "finished" ? null : t(run.status),
    run.last_step === null ? null : t("at_step", { n: run.last_step }),
    run.seconds ? formatSeconds(run.seconds) : null,
    run.project,
  ]
    .filter(Boolean)
    .join(" · ");
  const name = el(
    "a",
    { class: "run-name", href: `?run=${encodeURIComponent(run.key)}`, "aria-current": current ? "true" : null },
    el(
      "span",
      { class: "run-title" },
      run.pinned ? icon(ICONS.pin) : null,
      el("span", { class: "run-text", title: run.name }, cutMiddle(run.name)),
      healthSign(run.health),
    ),
    el(
      "span",
      { class: "quiet run-facts", title: `${t(run.status)} ${run.reason} · ${facts} · ${run.vocabulary}` },
      statusDot(run.status),
      facts || t(run.status),
    ),
    troubleLine(run.health),
    run.tags.length ? el("span", { class: "quiet run-note", text: run.tags.map((tag) => `#${tag}`).join(" ") }) : null,
    run.note ? el("span", { class: "quiet run-note", text: run.note }) : null,
  );
  name.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    document.body.classList.remove("list-open");
    selectRun(run.key);
  });
  const reward = el(
    "span",
    { class: "run-reward" },
    sparkline(run.reward, colourOf(run.key)),
    el("span", { class: "quiet", text: run.reward ? formatNumber(run.reward.last) : "" }),
  );
  const more = report
    ? null
    : el(
        "button",
        {
          class: "ghost more",
          "aria-label": `${t("menu")}: ${run.name}`,
          "aria-haspopup": "menu",
          onclick: (event) => openMenu(event.currentTarget, run),
        },
        icon(ICONS.more),
      );
  return el(
    "li",
    { class: `run${current ? " here" : ""}${run.hidden ? " hidden-run" : ""}`, "data-key": run.key },
    box,
    name,
    reward,
    more,
  );
}
