// The entry of the page: frame, tabs and heading; the URL decides which view is shown.
import { syncEnlarged } from "./charts/enlarged.js";
import { redrawMarks, restyleAll } from "./charts/plot.js";
import { openEventStream, prefetch, runPath } from "./data/api.js";
import { colourOf } from "./data/colours.js";
import { isLoading, track } from "./data/loading.js";
import { fetchMarks, hasMarks } from "./data/marks.js";
import { savePreference } from "./data/preferences.js";
import { report } from "./data/report.js";
import { changeList, refreshRuns, runs, selectedRuns, shownList } from "./data/runs.js";
import { selection } from "./data/selection.js";
import { prefetchTable } from "./data/table.js";
import { getList, getState, hasState, setState, watchState } from "./data/url_state.js";
import { handleKey, showHelp } from "./keyboard.js";
import { makeSidebar } from "./run_list.js";
import { sideEdge } from "./side_edge.js";
import { dateText, language, t } from "./text/language.js";
import { applyTheme, isDark, toggleTheme } from "./theme.js";
import { el, ICONS, icon, svg } from "./ui/dom.js";
import { debounce, throttle } from "./ui/scheduling.js";
import { showMessage } from "./ui/toast.js";
import { closeTooltip } from "./ui/tooltip.js";
import { emptyState, stateLink, statusDot, statusText } from "./ui/widgets.js";
import { loadView, TABS } from "./views/index.js";

const NEW_VIEW = ["tab", "run", "lang", "with"]; // states whose change makes a new view
const OWN_MARKS = ["overview", "findings"]; // views whose data has the marks
const MARKS_MS = 2000;
const LIVE_MS = 120; // between two updates of the view: new steps of many runs are fetched together
const MAX_FOLLOWED = 32; // runs whose new steps are told at once; those of others show with the list
const stage = el("main", { id: "stage", tabindex: "-1" });
const loading = el("div", { class: "loading", role: "status" });

let sidebar = null;
let view = null;
let stream = null;
let streamedRuns = "";
let newsOfRuns = new Map(); // by run, since the view was updated
let heading = null;
let overlaidSteps = "";
let missing = null; // a run of the address that is not here, and the one that is shown instead

function toggleLanguage() {
  const next = language() === "zh" ? "en" : "zh";
  savePreference("lang", next);
  setState({ lang: next }, true);
}

function renderFrame() {
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  sidebar = makeSidebar();
  sidebar.side.append(sideEdge());
  heading = el("div", { class: "heading" });
  const open = el(
    "button",
    { class: "ghost list-button", "aria-label": t("list"), onclick: () => document.body.classList.toggle("list-open") },
    icon(ICONS.list),
  );
  const bar = el(
    "header",
    { class: "top" },
    open,
    logo(),
    el("span", { class: "brand", text: "barograph" }),
    report ? null : homeLink("table", `${t("table")} (t)`),
    report ? null : homeLink("report", t("report")),
    heading,
    el("span", { class: "grow" }),
    el("button", { class: "ghost", id: "language", text: t("language"), onclick: toggleLanguage }),
    el(
      "button",
      { class: "ghost", id: "theme", title: t("theme"), "aria-label": t("theme"), onclick: toggleTheme },
      icon(isDark() ? ICONS.sun : ICONS.moon),
    ),
    el("button", { class: "ghost", id: "help", text: "?", "aria-label": t("keys"), onclick: showHelp }),
  );
  const body = el(
    "div",
    { class: "body" },
    report ? null : sidebar.side,
    el("div", { class: "content" }, tabBar(), loading, stage),
  );
  const skip = el("a", { class: "skip", href: "#stage", text: t("skip") });
  document.body.classList.toggle("alone", Boolean(report));
  document.body.replaceChildren(skip, bar, body);
}

// The link to a view that is not of a run.
function homeLink(tab, title) {
  return stateLink({ tab, report: "", chart: "" }, { class: "home", "data-tab": tab, title, text: t(tab) });
}

function logo() {
  return svg(
    "svg",
    { viewBox: "0 0 32 32", class: "logo", "aria-hidden": "true" },
    svg("path", { d: "M4 7v18c0 2.2 5.4 4 12 4s12-1.8 12-4V7", class: "drum" }),
    svg("ellipse", { cx: 16, cy: 7, rx: 13.2, ry: 4.4, class: "lid" }),
    svg("path", { d: "M5 16.5l5-1.5 4 2 4-2.5 3.5 8L27 24", class: "trace" }),
  );
}

function tabBar() {
  const links = TABS.map((tab, i) =>
    stateLink(
      { tab, chart: "", look: "", report: "" },
      { title: `${t(tab)} (${(i + 1) % 10})`, "aria-current": tab === getState("tab") ? "page" : null },
      t(tab),
      tab === "findings" ? el("span", { class: "tab-count" }) : null,
    ),
  );
  return el("nav", { class: "tabs", "aria-label": t("menu") }, links);
}

// On a phone the strip of tabs is wider than the screen.
function showCurrentTab() {
  const strip = document.querySelector("nav.tabs");
  const current = strip?.querySelector("[aria-current]");
  if (!current) return;
  const [outer, inner] = [strip, current].map((node) => node.getBoundingClientRect());
  if (inner.left < outer.left || inner.right > outer.right) strip.scrollLeft += inner.right - outer.right + 1;
}

// The number of open findings beside the name of their tab, where the verdict is that on the run as it is now.
function renderCount() {
  const health = runs.get(getState("run"))?.health;
  const count = document.querySelector(".tab-count");
  const text = health?.findings && health.is_current ? ` ${health.findings}` : "";
  if (!count || count.textContent === text) return;
  count.textContent = text;
  showCurrentTab(); // which moved
}

function isTable() {
  return getState("tab") === "table";
}

function isReport() {
  return getState("tab") === "report";
}

function renderHeading() {
  renderCount();
  document.body.classList.toggle("table-open", isTable());
  document.body.classList.toggle("report-open", isReport());
  for (const link of document.querySelectorAll(".home"))
    link.setAttribute("aria-current", link.getAttribute("data-tab") === getState("tab") ? "page" : "false");
  const isOfAll = isTable() || isReport();
  const run = isOfAll ? null : runs.get(getState("run"));
  const madeAt = report ? t("report_made", { d: dateText(report.made) }) : "";
  if (isReport()) return heading.replaceChildren(el("span", { class: "quiet", text: madeAt }));
  document.title = run ? `${run.name} · barograph` : isTable() ? `${t("table")} · barograph` : "barograph";
  if (!run) return heading.replaceChildren();
  heading.replaceChildren(
    el("span", { class: "quiet", text: run.project ? `${run.project} / ` : "" }),
    el("span", { class: "run-heading", text: run.name }),
    el("span", { class: `chip ${run.status}`, title: run.reason || null }, statusDot(run.status), ...statusText(run)),
    el("span", { class: "quiet", text: madeAt }),
  );
}

function render() {
  closeTooltip();
  view?.destroy?.();
  view = null;
  document.querySelector("nav.tabs")?.replaceWith(tabBar());
  showCurrentTab();
  sidebar.draw();
  renderHeading();
  stage.replaceChildren();
  const key = getState("run");
  followRuns(followedRuns(key));
  if (!shownList().newest) return stage.replaceChildren(emptyState(t("no_runs"), t("no_runs_do")));
  const run = runs.get(key);
  const chosen = selectedRuns();
  const host = el("div", { class: `view ${getState("tab")}` });
  const context = {
    run: key,
    name: run?.name ?? key,
    colour: colourOf(key),
    chosen,
    load: (request) => answerFor(host, request),
    fail: showError,
    rerender: render,
  };
  stage.replaceChildren(missingNote(key) ?? "", host);
  openView(host, context).catch(showError);
  if (!hasOwnMarks() && !hasMarks(key)) updateMarks();
}

// What a view asked for; null where that failed, which is said, or where another view is open by now.
async function answerFor(host, request) {
  try {
    const answer = await request;
    return host.isConnected ? answer : null;
  } catch (problem) {
    showError(problem);
    return null;
  }
}

async function openView(host, context) {
  view = {}; // until its module is loaded, which takes a request
  const make = await track(loadView(getState("tab")));
  if (host.isConnected) view = make(host, context);
}

// That the run of the address is not here, as long as the one instead of it is shown, or one selected beside it.
function missingNote(key) {
  if (missing?.shown !== key) missing = null;
  const gone = getList("with").filter((one) => !runs.has(one));
  if (!missing && !gone.length) return null;
  const text = missing ? t("no_such_run", { n: missing.wanted }) : t("no_such_others", { n: gone.join(", ") });
  return el("p", { class: "notice", role: "status", text });
}

// Whether a view shows no marks, or gets them with its data.
function hasOwnMarks() {
  return isTable() || isReport() || OWN_MARKS.includes(getState("tab"));
}

const updateMarks = throttle(MARKS_MS, () => {
  if (!hasOwnMarks()) fetchMarks(getState("run")).catch(showError);
});

function showError(problem) {
  if (problem instanceof TypeError && !navigator.onLine) return showMessage(t("lost"));
  showMessage(problem.message);
}

// The runs whose new steps the view shows.
function followedRuns(key) {
  return getState("tab") === "charts" ? selectedRuns().slice(0, MAX_FOLLOWED) : [key];
}

function followRuns(keys) {
  if (streamedRuns === keys.join() && stream) return;
  stream?.close();
  streamedRuns = keys.join();
  newsOfRuns = new Map();
  const status = (news) => {
    const run = runs.get(news.run);
    if (run) runs.set(news.run, { ...run, status: news.status, reason: news.reason });
    const isInView = news.run === getState("run");
    if (!isInView && run?.status === news.status) return; // the list was faster
    if (isInView) renderHeading();
    sidebar.draw();
    view?.update?.(news, [news.run]); // that a run logs nothing any more may be a finding
  };
  const data = (news) => {
    const run = runs.get(news.run);
    if (run) runs.set(news.run, { ...run, last_step: news.last_step });
    newsOfRuns.set(news.run, news);
    updateSoon();
  };
  let connected = false;
  const hello = (news) => {
    refresh();
    if (connected) view?.update?.(news.run ?? {}); // the stream was interrupted: fetch what was missed
    connected = true;
  };
  stream = openEventStream(keys, { runs: refresh, hello, status, data });
}

// Show what is new of the runs in view; a tab in the background asks when it is looked at again.
const updateSoon = throttle(LIVE_MS, () => {
  if (document.hidden) return;
  const changed = [...newsOfRuns.keys()];
  const news = newsOfRuns.get(getState("run"));
  newsOfRuns = new Map();
  if (news) {
    renderHeading();
    updateMarks();
  }
  if (changed.length) view?.update?.(news ?? {}, changed);
});

const refresh = debounce(60, async () => {
  try {
    await refreshRuns();
  } catch {
    return;
  }
  const before = getState("run");
  selectDefaultRun();
  sidebar.draw();
  if (before !== getState("run") || !view) return render();
  renderHeading();
  updateOverlaid();
  view.listed?.();
});

// Changes of overlaid runs that the stream does not report show in the list.
function updateOverlaid() {
  const followed = followedRuns(getState("run"));
  const now = selectedRuns()
    .filter((key) => !followed.includes(key))
    .map((key) => `${key} ${runs.get(key).last_step}`)
    .join();
  if (now !== overlaidSteps && overlaidSteps && ["charts", "compare"].includes(getState("tab"))) view.update?.({});
  overlaidSteps = now;
}

// Without a run in the URL, or with one that is not here, select the newest one; of several runs show the table.
function selectDefaultRun() {
  const { newest, total, hidden } = shownList();
  const wanted = getState("run");
  if (runs.has(wanted) || !newest || (isTable() && !wanted)) return;
  if (!wanted && !hasState("tab") && !report && total + hidden > 1) return setState({ tab: "table" }, true);
  missing = wanted ? { wanted, shown: newest } : null;
  setState({ run: newest }, true);
}

// Fetch selected runs that are not on the list's page, as after Back, and show them.
async function fetchSelected() {
  try {
    await refreshRuns();
  } catch (problem) {
    return showError(problem);
  }
  if (runs.has(getState("run")) || isTable()) render();
  else selectDefaultRun();
}

const search = debounce(120, () => changeList({ offset: 0 }).catch(showError));

watchState((changed) => {
  if (changed.includes("theme")) {
    applyTheme();
    renderFrame();
  } else if (changed.includes("lang")) renderFrame();
  if (changed.includes("q") || changed.includes("sort")) search();
  const isSelection = changed.includes("run") || changed.includes("with");
  const isRedrawn = changed.some((name) => ["tab", "lang", "theme"].includes(name));
  if (isTable() && view && !isRedrawn) changeTable(changed);
  else if (isSelection && selection().some((key) => !runs.has(key))) fetchSelected();
  else if (changed.some((name) => NEW_VIEW.includes(name)) || changed.includes("theme")) render();
  else view?.changed?.(changed);
  if (changed.includes("marks")) redrawMarks();
  if (changed.includes("chart")) syncEnlarged();
});

// In the table the selection changes boxes, and nothing else.
async function changeTable(changed) {
  view.changed?.(changed);
  if (selection().every((key) => runs.has(key))) return;
  try {
    await refreshRuns();
    view.changed?.(changed);
  } catch (problem) {
    showError(problem);
  }
}

async function start() {
  addEventListener("loading", () => {
    loading.textContent = isLoading() ? t("loading") : "";
  });
  applyTheme();
  renderFrame();
  if (getState("run") && getState("tab") === "overview") prefetch(runPath(getState("run"), "overview"));
  if (!report && (isTable() || !(getState("run") || hasState("tab")))) prefetchTable();
  try {
    await refreshRuns();
    selectDefaultRun();
    if (!view) render();
  } catch (problem) {
    stage.replaceChildren(emptyState(problem.message));
    followRuns([]);
  }
  addEventListener("runs", () => {
    sidebar.draw();
    renderHeading();
    view?.listed?.();
  });
  addEventListener("colours", () => {
    sidebar.draw();
    render();
  });
  addEventListener("marks", redrawMarks);
  addEventListener("keydown", handleKey);
  addEventListener("visibilitychange", updateSoon);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    applyTheme();
    restyleAll();
  });
}

start();
