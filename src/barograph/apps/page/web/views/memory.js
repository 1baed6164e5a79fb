// The Memory view: memory at the four moments of every phase of a step; peaks and host memory over steps.
import { ChartCard } from "../charts/card.js";
import { memorySteps } from "../charts/memory_steps.js";
import { SeriesStore } from "../charts/store.js";
import { fetchJson, runPath } from "../data/api.js";
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el, pictureWidth } from "../ui/dom.js";
import { emptyState, isEditingStep, panel, stepField } from "../ui/widgets.js";

export function memoryView(host, context) {
  const store = new SeriesStore();
  const devices = el("div");
  const lower = el("div", { class: "family" });

  async function read() {
    const data = await context.load(fetchJson(runPath(context.run, "memory"), { step: getState("step") }));
    if (!data) return;
    const names = [...data.peaks.step, ...data.peaks.max_allocated, ...data.host];
    if (!data.stairs.length && !names.length)
      return host.replaceChildren(emptyState(t("no_memory"), t("no_memory_do")));
    if (data.stairs.length)
      devices.replaceChildren(...data.devices.map((device) => devicePanel(data, device, pictureWidth(host))));
    else if (data.peaks.max_allocated.length)
      devices.replaceChildren(el("p", { class: "quiet pad", text: t("no_memory") }));
    if (store.cards.length) return;
    host.replaceChildren(devices, lower);
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
    const section = (title, names) => {
      if (!names.length) return [];
      const added = names.map(card);
      cards.push(...added);
      const nodes = added.map((one) => one.node);
      return [el("h2", { text: title }), el("div", { class: "charts-grid" }, nodes)];
    };
    lower.replaceChildren(
      ...section(t("peaks"), [...data.peaks.step, ...data.peaks.max_allocated]),
      ...section(t("host"), data.host),
    );
    store.setCards(cards);
  }

  read();
  return {
    update() {
      if (!getState("step") && !isEditingStep()) read();
      store.refresh();
    },
    changed: (names) => (names.includes("step") ? read() : store.refresh(true)),
    destroy: () => store.setCards([]),
  };
}

function devicePanel(data, device, width) {
  const { picture, legend, summary } = memorySteps(data, device, width);
  return panel(
    `${t("stairs", { n: data.step })} · ${t("device")} ${device}`,
    el("span", { class: "facts" }, summary, stepField(data.steps, data.step)),
    el("div", { class: "scroll", tabindex: 0 }, picture),
    legend,
  );
}
