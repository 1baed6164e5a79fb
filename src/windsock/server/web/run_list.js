// The list of runs at the side: search, sort, select and overlay.
import { sparkline } from "./charts/sparkline.js";
import { report } from "./data/report.js";
import { orderRuns, SORTS } from "./data/run_order.js";
import { colourOf, runs, selectRun, toggleOverlay } from "./data/runs.js";
import { getList, getState, setState } from "./data/url_state.js";
import { openMenu } from "./run_menu.js";
import { formatNumber, formatSeconds } from "./text/format.js";
import { t } from "./text/language.js";
import { seriesColour } from "./ui/colours.js";
import { el, ICONS, icon } from "./ui/dom.js";
import { selectField, statusDot } from "./ui/widgets.js";

let showHidden = false;

function visibleRuns() {
  return orderRuns([...runs.values()], { query: getState("q"), sort: getState("sort"), showHidden });
}

// Select the run `by` places further down the list.
export function selectNeighbour(by) {
  const all = visibleRuns();
  const current = all.findIndex((run) => run.key === getState("run"));
  const next = all[Math.max(0, Math.min(all.length - 1, current + by))];
  if (next) selectRun(next.key);
}

export function makeSidebar() {
  const search = el("input", {
    type: "search",
    id: "run-filter",
    placeholder: t("filter_runs"),
    "aria-label": t("filter_runs"),
    value: getState("q"),
  });
  search.addEventListener("input", () => setState({ q: search.value }, true));
  const sorts = Object.keys(SORTS).map((key) => [key, t(`by_${key}`)]);
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
  return { side, draw: () => renderList(rows, foot) };
}

function renderList(rows, foot) {
  const shown = visibleRuns();
  const focused = document.activeElement?.closest(".run")?.getAttribute("data-key");
  if (!runs.size) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_runs") }));
  else if (!shown.length) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_match") }));
  else rows.replaceChildren(...shown.map(runRow));
  if (focused)
    [...rows.children]
      .find((one) => one.dataset.key === focused)
      ?.querySelector(".run-name")
      ?.focus();
  const hidden = [...runs.values()].filter((run) => run.hidden).length;
  foot.replaceChildren(el("span", { class: "quiet", text: `${shown.length} ${t("runs")}` }));
  if (hidden) {
    const toggle = () => {
      showHidden = !showHidden;
      renderList(rows, foot);
    };
    foot.append(
      el("button", {
        class: "link",
        text: showHidden ? t("hide_again") : t("hidden_runs", { n: hidden }),
        onclick: toggle,
      }),
    );
  }
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
    run.last_step === null ? null : `${t("step")} ${run.last_step}`,
    run.seconds ? formatSeconds(run.seconds) : null,
    run.project,
  ]
    .filter(Boolean)
    .join(" · ");
  const name = el(
    "a",
    { class: "run-name", href: `?run=${encodeURIComponent(run.key)}`, "aria-current": current ? "true" : null },
    el("span", { class: "run-title" }, run.pinned ? icon(ICONS.pin) : null, run.name),
    el(
      "span",
      { class: "quiet run-facts", title: `${t(run.status)} ${run.reason} · ${facts} · ${run.vocabulary}` },
      statusDot(run.status),
      facts || t(run.status),
    ),
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
