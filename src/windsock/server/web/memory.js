// Memory: the four moments of every phase of a step as a staircase against capacity; peaks and host over steps.
import { ask, runPath } from "./api.js";
import { ChartCard, Store } from "./charts.js";
import { css, el, hue, percent, room, show, svg, tail } from "./dom.js";
import { empty, panel, stepBox, swatch, typing } from "./parts.js";
import { get } from "./state.js";
import { say, t } from "./words.js";

const TALL = 250;
const LEFT_ROOM = 50;

export function memoryView(host, context) {
  const store = new Store();
  const stairs = el("div");
  const lower = el("div", { class: "family" });

  async function read() {
    let data;
    try {
      data = await ask(runPath(context.run, "memory"), { step: get("step") });
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    const names = [...data.peaks.step, ...data.peaks.max_allocated, ...data.host];
    if (!data.stairs.length && !names.length) return host.replaceChildren(empty(t("no_memory"), t("no_memory_do")));
    if (data.stairs.length)
      stairs.replaceChildren(...data.devices.map((device) => staircase(data, device, room(host))));
    else if (data.peaks.max_allocated.length)
      stairs.replaceChildren(el("p", { class: "quiet pad", text: t("no_memory") }));
    if (store.cards.length) return;
    host.replaceChildren(stairs, lower);
    drawLower(data);
  }

  function drawLower(data) {
    const cards = [];
    const card = (name) =>
      new ChartCard(store, {
        key: name,
        title: name.replace(/^memory\//, ""),
        unit: data.unit,
        names: [name],
        lines: [{ run: context.run, mean: name }],
      });
    const part = (title, names) => {
      if (!names.length) return [];
      const made = names.map(card);
      cards.push(...made);
      return [
        el("h2", { text: title }),
        el(
          "div",
          { class: "charts-grid" },
          made.map((one) => one.node),
        ),
      ];
    };
    lower.replaceChildren(
      ...part(t("peaks"), [...data.peaks.step, ...data.peaks.max_allocated]),
      ...part(t("host"), data.host),
    );
    store.show(cards);
  }

  read();
  return {
    update: () => (get("step") || typing() || read(), store.refresh()),
    changed: (names) => (names.includes("step") ? read() : store.refresh(true)),
    destroy: () => store.show([]),
  };
}

function staircase(data, device, room) {
  const steps = data.stairs.filter((one) => one.device === device);
  const capacity = data.capacity[device] ?? null;
  const most = Math.max(
    ...steps.map((one) =>
      Math.max(one.max_reserved ?? 0, one.reserved ?? 0, one.max_allocated ?? 0, one.allocated ?? 0),
    ),
  );
  const above = capacity > 3 * most; // then it would press the stairs flat: it is told instead
  const top = (above ? most : Math.max(capacity, most)) || 1;
  const wide = (room - LEFT_ROOM) / steps.length;
  const y = (v) => TALL - 6 - (v / top) * (TALL - 24);
  const picture = svg("svg", {
    class: "gantt",
    viewBox: `0 0 ${room} ${TALL + 34}`,
    role: "img",
    "aria-label": `${t("stairs", { n: data.step })} ${device}`,
  });
  for (const part of [0, 0.5, 1])
    picture.append(
      svg("line", { class: "grid", x1: LEFT_ROOM, x2: room, y1: y(part * top), y2: y(part * top) }),
      svg("text", { x: 0, y: y(part * top) + 4, text: show(Number((part * top).toPrecision(3))) }),
    );
  steps.forEach((one, i) => {
    const x = LEFT_ROOM + i * wide;
    const said = `${one.phase} · ${say(data.moments[one.moment]) || one.moment}: ${t("allocated")} ${show(one.allocated)}, ${t("reserved")} ${show(one.reserved)}, ${t("peak")} ${show(one.max_allocated ?? one.max_reserved)} ${data.unit}`;
    const bar = (value, opacity, fill) =>
      value !== undefined &&
      value !== null &&
      svg(
        "rect",
        {
          x: x + 1,
          width: wide - 2,
          y: y(value),
          height: Math.max(0, y(0) - y(value)),
          "fill-opacity": opacity,
          style: { fill },
        },
        svg("title", { text: said }),
      );
    picture.append(...[bar(one.reserved, 0.25, hue(0)), bar(one.allocated, 0.85, hue(0))].filter(Boolean));
    const peak = one.max_allocated ?? one.max_reserved;
    if (peak !== undefined)
      picture.append(
        svg(
          "line",
          { x1: x + 1, x2: x + wide - 1, y1: y(peak), y2: y(peak), style: { stroke: hue(1), "stroke-width": 2 } },
          svg("title", { text: said }),
        ),
      );
    if (i && steps[i - 1].phase !== one.phase)
      picture.append(svg("line", { class: "grid", x1: x, x2: x, y1: 6, y2: TALL + 20 }));
    if (!i || steps[i - 1].phase !== one.phase)
      picture.append(
        svg("text", {
          class: "name",
          x: x + 3,
          y: TALL + 28,
          text: tail(one.phase, wide * steps.filter((other) => other.phase === one.phase).length),
        }),
      );
    if (wide > 68)
      picture.append(svg("text", { x: x + wide / 2, y: TALL + 11, "text-anchor": "middle", text: one.moment }));
  });
  if (capacity && !above)
    picture.append(
      svg("line", {
        x1: LEFT_ROOM,
        x2: room,
        y1: y(capacity),
        y2: y(capacity),
        style: { stroke: css("--bad"), "stroke-dasharray": "5 4" },
      }),
    );
  const peak = Math.max(
    ...steps.map((one) => one.max_reserved ?? one.max_allocated ?? one.reserved ?? one.allocated ?? 0),
  );
  const legend = el(
    "div",
    { class: "legend" },
    swatch(hue(0), t("allocated")),
    swatch(`color-mix(in srgb, ${hue(0)} 25%, ${css("--card")})`, t("reserved")),
    swatch(hue(1), t("peak")),
    capacity
      ? swatch(
          css("--bad"),
          `${t("capacity")} ${show(Number(capacity.toPrecision(4)))} ${data.unit}${above ? " ↑" : ""}`,
        )
      : null,
  );
  const said = `${t("peak")} ${show(peak)} ${data.unit}${capacity ? ` · ${t("of_capacity", { p: percent(peak / capacity), c: `${show(Number(capacity.toPrecision(3)))} ${data.unit}` })}` : ""}`;
  return panel(
    `${t("stairs", { n: data.step })} · ${t("device")} ${device}`,
    el("span", { class: "facts" }, said, stepBox(data.steps, data.step)),
    el("div", { class: "scroll" }, picture),
    legend,
  );
}
