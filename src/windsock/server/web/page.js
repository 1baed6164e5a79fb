// The frame: top bar, list of runs, tabs, keys; which view stands in it follows from the address.
import { foresee, listen, report, runPath } from "./api.js";
import { chartsView, closeLarge, enlarge } from "./charts.js";
import { compareView } from "./compare.js";
import { configView } from "./config.js";
import { el, forgetColours, icon, ICONS, once, svg } from "./dom.js";
import { evaluationView } from "./evaluation.js";
import { memoryView } from "./memory.js";
import { overviewView } from "./overview.js";
import { dotOf, empty, statusText } from "./parts.js";
import { restyleAll, underPointer } from "./plot.js";
import { chosenRuns, colourOf, makeSidebar, nextRun, readRuns, runs, tell } from "./runs.js";
import { samplesView } from "./samples.js";
import { get, keep, kept, set, watch } from "./state.js";
import { timeView } from "./time.js";
import { closeTip } from "./tip.js";
import { language, t } from "./words.js";

const VIEWS = {
  overview: overviewView,
  charts: chartsView,
  time: timeView,
  memory: memoryView,
  evaluation: evaluationView,
  samples: samplesView,
  compare: compareView,
  config: configView,
};
const TABS = Object.keys(VIEWS).filter((tab) => !report || tab !== "compare");
const REMADE = ["tab", "run", "lang", "with"]; // changes after which a view is made anew
const stage = el("main", { id: "stage", tabindex: "-1" });
let sidebar = null;
let view = null;
let stream = null;
let streamed = null;
let heading = null;

function theme() {
  return get("theme") || kept("theme") || "";
}

function applyTheme() {
  forgetColours();
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

function isDark() {
  return theme() ? theme() === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function turnTheme() {
  const next = isDark() ? "light" : "dark";
  keep("theme", next);
  set({ theme: next }, true);
}

function turnLanguage() {
  const next = language() === "zh" ? "en" : "zh";
  keep("lang", next);
  set({ lang: next }, true);
}

function frame() {
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  sidebar = makeSidebar();
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
    el("span", { class: "brand", text: "windsock" }),
    heading,
    el("span", { class: "grow" }),
    el("button", { class: "ghost", id: "language", text: t("language"), onclick: turnLanguage }),
    el(
      "button",
      { class: "ghost", id: "theme", title: t("theme"), "aria-label": t("theme"), onclick: turnTheme },
      icon(isDark() ? ICONS.sun : ICONS.moon),
    ),
    el("button", { class: "ghost", id: "help", text: "?", "aria-label": t("keys"), onclick: help }),
  );
  const body = el(
    "div",
    { class: "body" },
    report ? null : sidebar.side,
    el("div", { class: "content" }, tabs(), stage),
  );
  const skip = el("a", { class: "skip", href: "#stage", text: t("skip") });
  document.body.classList.toggle("alone", Boolean(report));
  document.body.replaceChildren(skip, bar, body);
}

function logo() {
  return svg(
    "svg",
    { viewBox: "0 0 32 32", class: "logo", "aria-hidden": "true" },
    svg("path", { d: "M5 3v27", class: "pole" }),
    svg("path", { d: "M6 6l22 4v7L6 20z", class: "sock" }),
    svg("path", { d: "M12 7.1l5 .9v10.400l-5 .8zM22 8.900l3 .55v7.900l-3 .5z", class: "stripe" }),
  );
}

function tabs() {
  const links = TABS.map((tab, i) => {
    const link = el("a", {
      href: `?tab=${tab}`,
      text: t(tab),
      title: `${t(tab)} (${i + 1})`,
      "aria-current": tab === get("tab") ? "page" : null,
    });
    link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      set({ tab });
    });
    return link;
  });
  return el("nav", { class: "tabs", "aria-label": t("menu") }, links);
}

function drawHeading() {
  const run = runs.get(get("run"));
  document.title = run ? `${run.name} · windsock` : "windsock";
  if (!run) return heading.replaceChildren();
  const said = report ? t("report_made", { d: new Date(report.made * 1000).toLocaleString() }) : "";
  heading.replaceChildren(
    el("span", { class: "quiet", text: run.project ? `${run.project} / ` : "" }),
    el("span", { class: "run-heading", text: run.name }),
    el("span", { class: `chip ${run.status}`, title: run.reason || null }, dotOf(run.status), ...statusText(run)),
    el("span", { class: "quiet", text: said }),
  );
}

function drawAll() {
  closeTip();
  view?.destroy?.();
  view = null;
  document.querySelector("nav.tabs")?.replaceWith(tabs());
  sidebar.draw();
  drawHeading();
  stage.replaceChildren();
  const key = get("run");
  follow(key);
  if (!runs.size) return stage.replaceChildren(empty(t("no_runs"), t("no_runs_do")));
  const run = runs.get(key);
  const context = { run: key, name: run?.name ?? key, colour: colourOf(key), chosen: chosenRuns(), fail };
  const make = VIEWS[get("tab")] ?? overviewView;
  const host = el("div", { class: `view ${get("tab")}` });
  stage.replaceChildren(host);
  view = make(host, context);
}

function fail(problem) {
  if (problem instanceof TypeError && !navigator.onLine) return tell(t("lost"));
  tell(problem.message);
}

function follow(key) {
  if (streamed === key && stream) return;
  stream?.close();
  streamed = key;
  const status = (news) => {
    const run = runs.get(news.run);
    if (run) runs.set(news.run, { ...run, status: news.status, reason: news.reason });
    drawHeading();
    sidebar.draw();
  };
  const data = (news) => {
    const run = runs.get(news.run);
    if (run) runs.set(news.run, { ...run, last_step: news.last_step });
    drawHeading();
    view?.update?.(news);
  };
  let greeted = false;
  const hello = (news) => {
    refresh();
    if (greeted) view?.update?.(news.run ?? {}); // the stream was lost, and with it what came meanwhile
    greeted = true;
  };
  stream = listen(key, { runs: refresh, hello, status, data });
}

const refresh = once(60, async () => {
  try {
    await readRuns();
  } catch {
    return;
  }
  const before = get("run");
  settle();
  sidebar.draw();
  if (before !== get("run") || !view) return drawAll();
  drawHeading();
  followOthers();
});

// The stream tells of the run that is looked at; of those beside it the list tells.
let besides = "";

function followOthers() {
  const now = chosenRuns()
    .slice(1)
    .map((key) => `${key} ${runs.get(key).last_step}`)
    .join();
  if (now !== besides && besides && ["charts", "compare"].includes(get("tab"))) view.update?.({});
  besides = now;
}

// Without a run in the address the newest one is shown.
function settle() {
  if (runs.has(get("run"))) return;
  const newest =
    [...runs.values()].filter((run) => !run.hidden).sort((a, b) => b.began - a.began)[0] ?? [...runs.values()][0];
  if (newest) set({ run: newest.key }, true);
}

function help() {
  const rows = [
    ["/", "k_filter"],
    ["j  k", "k_next"],
    [`1–${TABS.length}`, "k_tabs"],
    ["f", "k_full"],
    ["r", "k_reset"],
    ["?", "k_help"],
    ["Esc", "k_esc"],
    [t("drag"), "k_drag"],
    [t("double"), "k_reset"],
  ];
  const lines = rows.map(([keys, what]) =>
    el("tr", {}, el("td", {}, el("kbd", { text: keys })), el("td", { text: t(what) })),
  );
  const close = el("form", { method: "dialog" }, el("button", { text: t("close") }));
  const box = el(
    "dialog",
    { class: "help" },
    el("h2", { text: t("keys") }),
    el("table", {}, el("tbody", {}, lines)),
    close,
  );
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return escape();
  if (event.target.closest?.("input, select, textarea, dialog")) return;
  const act = {
    j: () => nextRun(1),
    k: () => nextRun(-1),
    r: () => set({ from: "", to: "" }),
    "?": help,
    f: () => underPointer() && enlarge(underPointer()),
    "/": seek,
  }[event.key];
  const tab = /^[1-9]$/.test(event.key) ? TABS[Number(event.key) - 1] : null;
  if (!act && !tab) return;
  event.preventDefault();
  if (tab) set({ tab });
  else act();
}

function escape() {
  document.querySelector(".menu")?.remove();
  document.body.classList.remove("list-open");
  closeTip();
  closeLarge();
  document.activeElement?.blur?.();
}

function seek() {
  (stage.querySelector("input[type=search]") ?? document.getElementById("run-filter"))?.focus();
}

watch((changed) => {
  if (changed.includes("theme")) {
    applyTheme();
    frame();
  } else if (changed.includes("lang")) frame();
  if (changed.includes("run")) settle();
  if (changed.some((name) => REMADE.includes(name)) || changed.includes("theme")) drawAll();
  else {
    if (changed.includes("q") || changed.includes("sort")) sidebar.draw();
    view?.changed?.(changed);
  }
});

async function begin() {
  applyTheme();
  frame();
  if (get("run") && get("tab") === "overview") foresee(runPath(get("run"), "overview"));
  try {
    await readRuns();
    settle();
    if (!view) drawAll();
  } catch (problem) {
    stage.replaceChildren(empty(problem.message));
    follow("");
  }
  addEventListener("runs", () => (sidebar.draw(), drawHeading()));
  addEventListener("keydown", pressed);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (applyTheme(), restyleAll()));
}

begin();
