// Where the time goes: phases stacked over steps, one step laid out by role and rank, the slowest ranks.
import { ask, runPath } from "./api.js";
import { css, el, hue, paced, percent, room, seconds, show, svg, tail } from "./dom.js";
import { drawPhases } from "./overview.js";
import { empty, panel, Stack, stepBox, swatch, table, typing } from "./parts.js";
import { get, set } from "./state.js";
import { t } from "./words.js";

const ROW = 24;

export function timeView(host, context) {
  const area = el("div", { class: "stack-host" });
  const legend = el("div", { class: "legend" });
  const lower = el("div");
  const laid = el("div");
  let stack = null;
  let data = null;
  let colours = new Map();
  const turn = (stat) =>
    el("button", { text: t(stat), "aria-pressed": get("stat") === stat, onclick: () => set({ stat }) });

  async function read() {
    try {
      data = await ask(runPath(context.run, "phases"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    if (!data.phases.length) return host.replaceChildren(empty(t("no_phases"), t("no_phases_do")));
    colours = new Map(data.phases.filter((one) => !one.part).map((one, i) => [one.name, i]));
    draw();
    await step();
  }

  function draw() {
    const switcher = el(
      "span",
      { class: "facts" },
      el("span", { text: t("click_step") }),
      turn("seconds"),
      turn("share"),
    );
    if (!stack) stack = new Stack(area, (chosen) => set({ step: chosen }));
    host.replaceChildren(panel(t("where_step"), switcher, area, legend), laid, lower);
    drawPhases(stack, data, get("stat") === "share", legend);
    lower.replaceChildren(summaries(data), ranks(data, colours) ?? "");
  }

  async function step() {
    let line;
    try {
      line = await ask(runPath(context.run, "timeline"), { step: get("step") });
    } catch (problem) {
      return laid.replaceChildren(
        panel(t("one_step", { n: get("step") }), "", el("p", { class: "quiet", text: problem.message })),
      );
    }
    if (!host.isConnected) return;
    if (!line?.groups?.length) return laid.replaceChildren(el("p", { class: "quiet pad", text: t("no_spans") }));
    const [first, last] = line.steps;
    const go = (by) => set({ step: Math.max(first, Math.min(last, line.step + by)) });
    const steer = el(
      "span",
      { class: "facts" },
      el("button", { text: "‹", "aria-label": "−1", onclick: () => go(-1) }),
      stepBox(line.steps, line.step),
      el("button", { text: "›", "aria-label": "+1", onclick: () => go(1) }),
    );
    const facts = el(
      "div",
      { class: "legend" },
      ["onload", "execute", "offload"].map((what) => swatch(css("--ink"), t(what))),
      el("span", { text: `${t("unaccounted")} ${percent(line.unaccounted)}` }),
      line.overlap ? el("span", { text: `${t("overlap")} ${percent(line.overlap)}` }) : null,
    );
    [...facts.querySelectorAll(".swatch i")].forEach((mark, i) => (mark.style.opacity = [0.4, 1, 0.4][i]));
    laid.replaceChildren(
      panel(
        `${t("one_step", { n: line.step })} · ${seconds(line.end - line.start)}`,
        steer,
        el("div", { class: "scroll" }, gantt(line, colours, room(host))),
        facts,
      ),
    );
  }

  read();
  return {
    update: paced(3000, () => typing() || read()),
    changed(names) {
      if (!data) return;
      if (names.includes("stat")) draw();
      if (names.includes("step")) step();
    },
    destroy: () => stack?.destroy(),
  };
}

// Rows by writer and phase; loading before and unloading after are lighter and hatched by their lower height.
function gantt(line, colours, wide) {
  const names = wide < 600 ? 110 : 190;
  const whole = line.end - line.start || 1;
  const x = (v) => names + (Math.max(0, v) / whole) * (wide - names - 10);
  const count = line.groups.reduce((sum, group) => sum + group.rows.length + 1, 0);
  const height = count * ROW + 22;
  const picture = svg("svg", {
    class: "gantt",
    viewBox: `0 0 ${wide} ${height}`,
    role: "img",
    "aria-label": t("one_step", { n: line.step }),
  });
  const marks = wide < 600 ? 2 : 5;
  for (let i = 0; i <= marks; i++) {
    const at = x((whole * i) / marks);
    picture.append(
      svg("line", { class: "grid", x1: at, x2: at, y1: 0, y2: height - 18 }),
      svg("text", {
        x: at,
        y: height - 5,
        "text-anchor": i === marks ? "end" : i ? "middle" : "start",
        text: seconds((whole * i) / marks),
      }),
    );
  }
  let y = 0;
  for (const group of line.groups) {
    picture.append(svg("text", { x: 0, y: y + 16, text: group.title }));
    y += ROW;
    for (const row of group.rows) {
      picture.append(
        svg(
          "text",
          { class: "name", x: 8 + row.depth * 10, y: y + 15, text: tail(row.name, names) },
          svg("title", { text: row.name }),
        ),
      );
      const fill = hue(colours.get(row.name) ?? 7);
      for (const span of row.spans) picture.append(...bars(span, row, x, y, fill));
      y += ROW;
    }
  }
  return picture;
}

function bars(span, row, x, y, fill) {
  const whole = Math.max(0, span.end - span.start);
  const load = Math.min(whole, span.onload ?? 0);
  const unload = Math.min(whole - load, span.offload ?? 0);
  const said = `${row.name}: ${seconds(whole)} · ${t("onload")} ${seconds(span.onload)} · ${t("execute")} ${seconds(span.execute)} · ${t("offload")} ${seconds(span.offload)}${span.tokens ? ` · ${show(span.tokens)} tokens` : ""}`;
  const part = (from, to, light) =>
    to > from &&
    svg(
      "rect",
      {
        x: x(from),
        y: light ? y + 8 : y + 4,
        width: Math.max(1, x(to) - x(from)),
        height: light ? 8 : 16,
        rx: 2,
        class: `${span.failed ? "failed" : ""} ${span.open ? "open" : ""}`,
        "fill-opacity": light ? 0.4 : 1,
        style: { fill },
      },
      svg("title", { text: said }),
    );
  return [
    part(span.start, span.start + load, true),
    part(span.start + load, span.end - unload, false),
    part(span.end - unload, span.end, true),
  ].filter(Boolean);
}

function summaries(data) {
  if (!data.summaries.length) {
    const rows = data.phases.map((one) => [one.name, seconds(mean(one.seconds)), percent(one.share)]);
    return panel(t("phases_title"), t("per_step"), table([t("phase"), t("mean"), t("share")], rows, "right"));
  }
  const rows = data.summaries.map((one) => [
    one.name,
    seconds(one.mean),
    seconds(one.p95),
    seconds(one.max),
    percent(one.share),
    one.count,
    one.slowest,
    one.tokens_per_second ? show(one.tokens_per_second) : "–",
  ]);
  return panel(
    t("phases_title"),
    "",
    table(
      [t("phase"), t("mean"), t("p95"), t("max"), t("share"), t("count"), t("slowest"), t("tokens/s")],
      rows,
      "right",
    ),
  );
}

function mean(values) {
  const known = values.filter((v) => v !== null);
  return known.reduce((sum, v) => sum + v, 0) / (known.length || 1);
}

function ranks(data, colours) {
  if (!data.ranks.length) return null;
  const most = Math.max(...data.ranks.map((one) => one.seconds));
  const rows = data.ranks.slice(0, 64).flatMap((one) => [
    el("span", { text: one.writer }),
    el(
      "span",
      { class: "track" },
      Object.entries(one.phases).map(([name, took]) =>
        el("i", {
          title: `${name} ${seconds(took)}`,
          style: { width: `${(100 * took) / most}%`, background: hue(colours.get(name) ?? 7) },
        }),
      ),
    ),
    el("span", { text: seconds(one.seconds) }),
  ]);
  return panel(t("slow_ranks"), t("per_step"), el("div", { class: "bars" }, rows));
}
