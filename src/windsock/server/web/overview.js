// The state of a run in three seconds: verdicts in words, vital signs as cards, where a step goes.
import { ask, fromJSON, runPath } from "./api.js";
import { css, el, hue, number, seconds, short, show } from "./dom.js";
import { dotOf, empty, panel, Stack, swatch, valueText } from "./parts.js";
import { Plot } from "./plot.js";
import { set } from "./state.js";
import { aboutMetric, explainable } from "./tip.js";
import { say, t } from "./words.js";

const MARKS = { good: "✓", watch: "!", bad: "×", unknown: "…" };

export function overviewView(host, context) {
  const cards = new Map();
  const top = el("div");
  const grid = el("div", { class: "vitals" });
  const lower = el("div", { class: "lower" });
  let stack = null;
  let busy = false;
  let again = false;
  host.append(top, grid, lower);

  async function read() {
    if (busy) return void (again = true);
    busy = true;
    try {
      draw(await ask(runPath(context.run, "overview")));
    } catch (problem) {
      context.fail(problem);
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(read, 400);
    }
  }

  function draw(data) {
    if (!host.isConnected) return;
    top.replaceChildren(banner(data));
    const keys = [!data.names, ...data.vital.map((sign) => sign.key)].join();
    if (grid.dataset.keys !== keys) {
      for (const one of cards.values()) one.plot.destroy();
      cards.clear();
      for (const sign of data.vital) cards.set(sign.key, vitalCard(sign, data, context));
      grid.replaceChildren(...[...cards.values()].map((one) => one.card));
      grid.dataset.keys = keys;
    }
    for (const sign of data.vital) cards.get(sign.key).update(sign);
    if (!data.vital.length && !data.names) grid.replaceChildren(empty(t("no_metrics"), t("no_metrics_do")));
    drawLower(data);
  }

  function drawLower(data) {
    const parts = [];
    if (data.time?.phases.length) {
      if (!stack) {
        const legend = el("div", { class: "legend" });
        const area = el("div", { class: "stack-host" });
        stack = {
          legend,
          made: new Stack(area, (step) => set({ tab: "time", step })),
          panel: panel(t("where_step"), t("stacked"), area, legend),
        };
      }
      drawPhases(stack.made, data.time, false, stack.legend);
      parts.push(stack.panel);
    }
    if (data.absent.length) parts.push(absentPanel(data));
    if (data.notices.length)
      parts.push(
        panel(
          t("notices"),
          String(data.notices.length),
          el(
            "ul",
            { class: "notices" },
            data.notices.map((text) => el("li", { text })),
          ),
        ),
      );
    lower.replaceChildren(...parts);
  }

  read();
  return {
    update: read,
    destroy: () => (stack?.made.destroy(), [...cards.values()].forEach((one) => one.plot.destroy())),
  };
}

function banner(data) {
  const { word } = data.health;
  const crucial = data.crucial.map((one) => {
    const item = el("li", {}, dotOf(one.word), el("b", { text: say(one.title) }), el("span", { text: say(one.text) }));
    return explainable(item, () => aboutMetric(data.metrics[one.metric], one.name ? [one.name] : [], one.note));
  });
  return el(
    "section",
    { class: `banner card ${word}` },
    el("span", { class: "verdict", "aria-hidden": "true", text: MARKS[word] }),
    el("div", {}, el("h1", { text: t(`health_${word}`) }), el("ul", { class: "crucial" }, crucial)),
  );
}

function vitalCard(sign, data, context) {
  const metric = data.metrics[sign.metric];
  const title = el("h3", { text: say(sign.title) });
  const value = el("span", { class: "large" });
  const change = el("span", { class: "quiet" });
  const point = el("span", { class: "point" });
  const area = el("div", { class: "vital-plot" });
  const ends = el("div", { class: "ends quiet" });
  const unit = [metric?.sign, metric?.estimator, sign.curves.max && "min–max"].filter(Boolean).join(" · ");
  explainable(title, () => aboutMetric(metric, [sign.name, ...(sign.others ?? [])], sign.note));
  const head = el(
    "header",
    {},
    title,
    point,
    el("span", { class: "quiet unit", text: unit, title: say(metric?.unit) }),
  );
  const card = el(
    "article",
    { class: "card vital", "data-key": sign.key, "data-name": sign.name },
    head,
    el("div", { class: "now" }, value, change),
    area,
    ends,
  );
  const onpoint = (at) => {
    point.textContent = at ? `${t("step")} ${Math.round(at.x)}: ${valueText(at.values)[0]?.text ?? ""}` : "";
    card.classList.toggle("pointed", Boolean(at));
  };
  const plot = new Plot(area, {
    small: true,
    band: metric?.band,
    onpoint,
    onzoom: (range) => range && set({ tab: "charts", x: "", from: range[0], to: range[1] }),
  });
  function update(now) {
    const curve = (name) => (now.curves[name] ? fromJSON(now.curves[name]) : null);
    const main = curve("mean") ?? curve("line") ?? fromJSON(Object.values(now.curves)[0]);
    const line = {
      run: context.run,
      label: context.name,
      colour: context.colour,
      main,
      max: curve("max"),
      min: curve("min"),
    };
    value.textContent = brief(now.last);
    value.classList.toggle("bad", !Number.isFinite(number(now.last)));
    const bad = main.nonfinite.reduce((sum, n) => sum + n, 0);
    const low = metric?.band && outside(now.last, metric.band);
    value.classList.toggle("watch", Boolean(low));
    const was = now.first === null || now.first === undefined ? "" : `${t("from")} ${brief(now.first)}`;
    change.replaceChildren(bad ? el("span", { class: "bad", text: `× ${t("nonfinite", { n: bad })}` }) : was);
    const steps = main.x.length ? [main.x[0], main.x_end[main.x_end.length - 1]] : ["", ""];
    ends.replaceChildren(el("span", { text: steps[0] }), el("span", { text: `${t("step")} ${steps[1]}` }));
    plot.set([line]);
  }
  return { card, plot, update };
}

function brief(value) {
  return Math.abs(value) >= 1e4 ? short(value) : show(value);
}

function outside(value, band) {
  const v = number(value);
  return (band.low !== null && v < band.low) || (band.high !== null && v > band.high);
}

function absentPanel(data) {
  const rows = data.absent.map((one) => {
    const name = el("b", { text: say(one.title) });
    explainable(name, () => aboutMetric(data.metrics[one.metrics[0]], []));
    return el("li", {}, name, el("span", { class: "quiet", text: say(one.reason) }));
  });
  return panel(t("not_logged"), "", el("ul", { class: "absent" }, rows));
}

// Phases of a step, stacked; share: as parts of the whole.
export function drawPhases(stack, time, share, legend) {
  const whole = time.steps.map((_, i) => time.step_seconds[i] ?? sumOf(time, i));
  const scaled = (values) => (share ? values.map((v, i) => (whole[i] ? (v ?? 0) / whole[i] : 0)) : values);
  const shown = time.phases.filter((phase) => !phase.part);
  const parts = shown.map((phase, i) => ({
    name: phase.name,
    fill: hue(i),
    values: scaled(phase.seconds),
    share: phase.share,
  }));
  parts.push({ name: t("unaccounted"), fill: css("--hair-strong"), values: scaled(time.unaccounted ?? []) });
  const unit = share ? (v) => `${(100 * v).toFixed(0)}%` : seconds;
  stack.set(time.steps, time.steps_end, parts, share ? [] : whole, unit, {
    quiet: css("--quiet"),
    font: css("--font"),
  });
  legend.replaceChildren(
    ...parts.map((part) => swatch(part.fill, `${part.name}${part.share ? ` ${(100 * part.share).toFixed(0)}%` : ""}`)),
  );
}

function sumOf(time, i) {
  return time.phases.reduce((sum, phase) => sum + (phase.part ? 0 : (phase.seconds[i] ?? 0)), 0);
}
