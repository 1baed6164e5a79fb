// The menu of a chart with which it is taken along: as a picture, as numbers, as text.
import { fetchSeries } from "../data/api.js";
import { report } from "../data/report.js";
import { runs } from "../data/runs.js";
import { addressWith, getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { download } from "../ui/dom.js";
import { menuItem, openMenuAt } from "../ui/menu.js";
import { showMessage } from "../ui/toast.js";
import { chartPng, chartSvg, paperSvg } from "./picture.js";
import { chartMarkdown, meansCsv, pointsCsv } from "./table.js";
import { zoomRange } from "./zoom.js";

export function openExportMenu(button, card) {
  const { chart, plot } = card;
  const item = (label, work) =>
    menuItem(label, () => {
      close();
      work().catch((problem) => showMessage(problem.message));
    });
  const save = (ending, content, type) => download(`${chart.key}.${ending}`, new Blob([content], { type }));
  const close = openMenuAt(
    button,
    item(t("png"), async () => download(`${chart.key}.png`, await chartPng(plot, chart))),
    item(t("svg"), async () => save("svg", chartSvg(plot, chart), "image/svg+xml")),
    item(t("svg_paper"), async () => save("paper.svg", paperSvg(plot, chart), "image/svg+xml")),
    item(t("csv"), async () => save("csv", await allPoints(card), "text/csv")),
    item(t("copy_markdown"), () => copy(chartMarkdown(chart, plot.lines, linkTo(chart)))),
    item(t("copy_link"), () => copy(linkTo(chart))),
    report ? "" : item(t("report_add"), () => addToReport(button, card)),
  );
}

async function addToReport(button, card) {
  const { openAddMenu } = await import("../notes/new_report.js");
  await openAddMenu(button, card);
}

async function copy(text) {
  await navigator.clipboard.writeText(text);
  showMessage(t("copied"));
}

// The address of the page with this chart enlarged.
function linkTo({ key }) {
  return new URL(addressWith({ chart: key }), location.href).href;
}

// Every point of a chart's series in the zoomed range, not the buckets that it draws; of groups in a file their means.
async function allPoints(card) {
  if (report && card.plot.lines.some((line) => line.isGroup)) return meansCsv(card.plot.lines, "step");
  const [from, to] = zoomRange() ?? [null, null];
  const x = getState("x");
  const found = await fetchSeries(card.requests(), { x, from, to, points: 0, branches: false });
  const labels = new Map(card.lines().map((line) => [line.run, line.label]));
  return pointsCsv(
    found.map((series) => ({ ...series, label: labels.get(series.run) ?? runs.get(series.run)?.name ?? series.run })),
    x,
  );
}
