// The list of runs: search, sort, choose one, overlay several; pin, rename, hide and note; live.
import { ask, change, report } from "./api.js";
import { el, hue, icon, ICONS, number, seconds, show } from "./dom.js";
import { dotOf, select, spark } from "./parts.js";
import { get, list, packed, set } from "./state.js";
import { t } from "./words.js";

export const runs = new Map();
const order = new Map(); // the colour of a run: by when it came to be known, oldest first
let cursor = null;
let revealed = false;

export async function readRuns() {
  const answer = await ask("/api/runs", { since: cursor });
  if (answer.reset) runs.clear();
  answer.gone.forEach((key) => runs.delete(key));
  answer.runs.forEach((run) => runs.set(run.key, run));
  cursor = answer.cursor;
  const fresh = [...runs.values()].filter((run) => !order.has(run.key)).sort((a, b) => a.began - b.began);
  for (const run of fresh) order.set(run.key, order.size);
}

export function colourOf(key) {
  return order.get(key) ?? 0;
}

export function chosenRuns() {
  return [get("run"), ...list("with")].filter((key, i, all) => runs.has(key) && all.indexOf(key) === i);
}

const SORTS = {
  began: (a, b) => b.began - a.began,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  reward: (a, b) => rewardOf(b) - rewardOf(a),
  status: (a, b) => a.status.localeCompare(b.status) || b.began - a.began,
  heard: (a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0),
};

function rewardOf(run) {
  const last = number(run.reward?.last);
  return Number.isNaN(last) ? -Infinity : last;
}

function listed() {
  const words = get("q").toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) =>
    `${run.name} ${run.project} ${run.status} ${run.vocabulary} ${run.tags.join(" ")} ${run.note}`.toLowerCase();
  return [...runs.values()]
    .filter((run) => (revealed || !run.hidden) && words.every((word) => text(run).includes(word)))
    .sort((a, b) => Number(b.pinned ?? 0) - Number(a.pinned ?? 0) || (SORTS[get("sort")] ?? SORTS.began)(a, b));
}

export function nextRun(by) {
  const all = listed();
  const now = all.findIndex((run) => run.key === get("run"));
  const next = all[Math.max(0, Math.min(all.length - 1, now + by))];
  if (next) chooseRun(next.key);
}

function chooseRun(key) {
  set({ run: key, from: "", to: "", step: "", sample: "", with: packed(list("with").filter((one) => one !== key)) });
}

function overlayRun(key) {
  if (key === get("run")) return;
  const others = list("with");
  set({ with: packed(others.includes(key) ? others.filter((one) => one !== key) : [...others, key]) });
}

export function makeSidebar() {
  const search = el("input", {
    type: "search",
    id: "run-filter",
    placeholder: t("filter_runs"),
    "aria-label": t("filter_runs"),
    value: get("q"),
  });
  search.addEventListener("input", () => set({ q: search.value }, true));
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
      select(t("sort"), sorts, get("sort"), (sort) => set({ sort })),
    ),
    rows,
    foot,
  );
  return { side, draw: () => drawList(rows, foot) };
}

function drawList(rows, foot) {
  const shown = listed();
  const focused = document.activeElement?.closest?.(".run")?.dataset.key;
  if (!runs.size) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_runs") }));
  else if (!shown.length) rows.replaceChildren(el("li", { class: "quiet pad", text: t("no_match") }));
  else rows.replaceChildren(...shown.map(row));
  if (focused)
    [...rows.children]
      .find((one) => one.dataset.key === focused)
      ?.querySelector(".run-name")
      ?.focus();
  const hidden = [...runs.values()].filter((run) => run.hidden).length;
  foot.replaceChildren(el("span", { class: "quiet", text: `${shown.length} ${t("runs")}` }));
  if (hidden) {
    const turn = () => {
      revealed = !revealed;
      drawList(rows, foot);
    };
    foot.append(
      el("button", {
        class: "link",
        text: revealed ? t("hide_again") : t("hidden_runs", { n: hidden }),
        onclick: turn,
      }),
    );
  }
}

function row(run) {
  const here = run.key === get("run");
  const beside = list("with").includes(run.key);
  const box = el("button", {
    class: "box",
    "aria-pressed": here || beside,
    title: t("overlay"),
    "aria-label": `${t("overlay")}: ${run.name}`,
    style: { "--c": hue(colourOf(run.key)) },
    onclick: () => overlayRun(run.key),
  });
  const facts = [
    run.status === "finished" ? null : t(run.status),
    run.last_step === null ? null : `${t("step")} ${run.last_step}`,
    run.seconds ? seconds(run.seconds) : null,
    run.project,
  ]
    .filter(Boolean)
    .join(" · ");
  const name = el(
    "a",
    { class: "run-name", href: `?run=${encodeURIComponent(run.key)}`, "aria-current": here ? "true" : null },
    el("span", { class: "run-title" }, run.pinned ? icon(ICONS.pin) : null, run.name),
    el(
      "span",
      { class: "quiet run-facts", title: `${t(run.status)} ${run.reason} · ${facts} · ${run.vocabulary}` },
      dotOf(run.status),
      facts || t(run.status),
    ),
    run.tags.length ? el("span", { class: "quiet run-note", text: run.tags.map((tag) => `#${tag}`).join(" ") }) : null,
    run.note ? el("span", { class: "quiet run-note", text: run.note }) : null,
  );
  name.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    document.body.classList.remove("list-open");
    chooseRun(run.key);
  });
  const reward = el(
    "span",
    { class: "run-reward" },
    spark(run.reward, colourOf(run.key)),
    el("span", { class: "quiet", text: run.reward ? show(run.reward.last) : "" }),
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
    { class: `run${here ? " here" : ""}${run.hidden ? " hidden-run" : ""}`, "data-key": run.key },
    box,
    name,
    reward,
    more,
  );
}

function openMenu(button, run) {
  document.querySelector(".menu")?.remove();
  const item = (label, work) => el("button", { role: "menuitem", text: label, onclick: () => (menu.remove(), work()) });
  const menu = el(
    "div",
    { class: "menu", role: "menu" },
    item(run.pinned ? t("unpin") : t("pin"), () => mark(run, { pinned: !run.pinned })),
    item(t("rename"), () => askText(t("new_name"), run.name, (name) => mark(run, { name: name || null }))),
    item(t("note"), () => askText(t("new_note"), run.note, (note) => mark(run, { note }))),
    item(run.hidden ? t("unhide") : t("hide"), () => mark(run, { hidden: !run.hidden })),
  );
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.min(box.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.firstChild.focus();
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
    if (step) document.activeElement[step]?.focus();
    if (event.key === "Escape") button.focus();
  });
  setTimeout(() =>
    addEventListener("pointerdown", (event) => menu.contains(event.target) || menu.remove(), { once: true }),
  );
}

async function mark(run, fields) {
  try {
    runs.set(run.key, { ...run, ...(await change(run.key, fields)) });
  } catch (problem) {
    tell(problem.message);
  }
  dispatchEvent(new CustomEvent("runs"));
}

export function tell(text) {
  const note = el("div", { class: "toast", role: "status", text });
  document.body.append(note);
  setTimeout(() => note.remove(), 6000);
}

function askText(label, value, done) {
  const field = el("input", { type: "text", value, "aria-label": label });
  const form = el(
    "form",
    { method: "dialog" },
    el("label", {}, el("span", { text: label }), field),
    el("button", { text: "OK" }),
  );
  const box = el("dialog", { class: "ask" }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    box.close();
    done(field.value.trim());
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  field.select();
}
