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
import { html, nothing, render, repeat } from "./ui/html.js";
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

// The list, and the function that draws it, or what has changed in it.
export function makeSidebar() {
  const search = el("input", {
    type: "search",
    id: "run-filter",
    placeholder: t("filter_runs"),
    "aria-label": t("filter_runs"),
    value: getState("q"),
    oninput: () => typeState("q", search.value),
  });
  const sorts = SORTS.map((key) => [key, t(`by_${key}`)]);
  const sort = selectField(t("sort"), sorts, getState("sort"), (sort) => setState({ sort }));
  const rows = el("div");
  const head = el("div", { class: "runs-head" }, sort);
  const side = el("nav", { class: "side", "aria-label": t("list") }, search, head, rows);
  const draw = () => {
    if (search.value !== getState("q")) search.value = getState("q"); // after Back
    const list = shownList();
    render(listOfRuns(list), rows);
    if (rows.dataset.offset !== String(list.offset)) side.scrollTo(0, 0);
    rows.dataset.offset = String(list.offset);
  };
  return { side, draw };
}

function listOfRuns(list) {
  const shown = list.keys.map((key) => runs.get(key)).filter(Boolean);
  const showHidden = () => changeList({ showHidden: !list.showHidden, offset: 0 });
  const hidden = list.showHidden ? t("hide_again") : t("hidden_runs", { n: list.hidden });
  return html`<ul class="runs">
      ${repeat(shown, (run) => run.key, runRow)}
      ${shown.length ? nothing : html`<li class="quiet pad">${list.newest ? t("no_match") : t("no_runs")}</li>`}
    </ul>
    <div class="runs-foot">
      ${pager(list)} ${list.hidden ? html`<button class="link" @click=${showHidden}>${hidden}</button>` : nothing}
    </div>`;
}

// Which runs of how many are shown, and the buttons to the pages before and after.
function pager({ keys, offset, total }) {
  if (total <= PAGE_SIZE) return html`<span class="quiet">${t("runs_count", { n: total })}</span>`;
  const turnTo = (label, text, to, possible) =>
    html`<button class="ghost" aria-label=${label} ?disabled=${!possible} @click=${() => changeList({ offset: to })}>
      ${text}</button>`;
  return html`${turnTo(t("previous_page"), "‹", offset - PAGE_SIZE, offset > 0)}
    <span class="quiet">${offset + 1}–${offset + keys.length} / ${total} ${t("runs")}</span>
    ${turnTo(t("next_page"), "›", offset + PAGE_SIZE, offset + keys.length < total)}`;
}

// The sign of the doctor's verdict; faint where the run has gone on since.
function healthSign(health) {
  if (!health) return nothing;
  const { word, step, is_current, first } = health;
  const about = [t(`health_${word}`), first && localized(first.title), is_current ? "" : t("as_of_step", { n: step })];
  const text = about.filter(Boolean).join(" · ");
  return html`<span class="health ${word}${is_current ? "" : " old"}" title=${text} aria-label=${text}>${SYMBOLS[word]}</span>`;
}

// The most important finding.
function troubleLine(health) {
  if (!health?.first) return nothing;
  const text = `${localized(health.first.title)} · ${t("since_step", { n: health.first.onset })}`;
  return html`<span class="run-note trouble-note ${health.word}${health.is_current ? "" : " old"}">${text}</span>`;
}

function runRow(run) {
  const current = run.key === getState("run");
  const facts = [
    run.status === "finished" ? null : t(run.status),
    run.last_step === null ? null : t("at_step", { n: run.last_step }),
    run.seconds ? formatSeconds(run.seconds) : null,
    run.project,
  ]
    .filter(Boolean)
    .join(" · ");
  const choose = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    document.body.classList.remove("list-open");
    selectRun(run.key);
  };
  return html`<li class="run${current ? " here" : ""}${run.hidden ? " hidden-run" : ""}" data-key=${run.key}>
    <button class="box" aria-pressed=${current || getList("with").includes(run.key)} title=${t("overlay")}
      aria-label="${t("overlay")}: ${run.name}" .style=${`--c: ${seriesColour(colourOf(run.key))}`}
      @click=${() => toggleOverlay(run.key)}></button>
    <a class="run-name" href="?run=${encodeURIComponent(run.key)}" aria-current=${current || nothing} @click=${choose}>
      <span class="run-title">
        ${run.pinned ? icon(ICONS.pin) : nothing}
        <span class="run-text" title=${run.name}>${cutMiddle(run.name)}</span>${healthSign(run.health)}
      </span>
      <span class="quiet run-facts" title="${t(run.status)} ${run.reason} · ${facts} · ${run.vocabulary}">
        ${statusDot(run.status)}${facts || t(run.status)}
      </span>
      ${troubleLine(run.health)}
      ${run.tags.length ? html`<span class="quiet run-note">${run.tags.map((tag) => `#${tag}`).join(" ")}</span>` : nothing}
      ${run.note ? html`<span class="quiet run-note">${run.note}</span>` : nothing}
    </a>
    <span class="run-reward">
      ${sparkline(run.reward, colourOf(run.key))}
      <span class="quiet">${run.reward ? formatNumber(run.reward.last) : ""}</span>
    </span>
    ${
      report
        ? nothing
        : html`<button class="ghost more" aria-label="${t("menu")}: ${run.name}" aria-haspopup="menu"
      @click=${(event) => openMenu(event.currentTarget, run)}>${icon(ICONS.more)}</button>`
    }
  </li>`;
}
