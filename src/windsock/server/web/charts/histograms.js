// Histograms over steps as heat maps.
import { fetchJson, runPath } from "../data/api.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";

// A section with a card per name; each fetches its histograms when it comes into view.
export function histogramSection(names, context) {
  const grid = el("div", { class: "charts-grid" });
  for (const name of names) {
    const area = el("canvas", { class: "histogram" });
    const caption = el("span", { class: "quiet unit" });
    const card = el(
      "article",
      { class: "card chart", "data-name": name },
      el("header", { class: "names" }, el("h3", { text: name }), caption),
      area,
    );
    grid.append(card);
    new IntersectionObserver(async (entries, self) => {
      if (!entries[0].isIntersecting) return;
      self.disconnect();
      const found = await fetchJson(runPath(context.run, "histograms"), { name, points: 40 });
      drawHistograms(area, found.histograms);
      caption.textContent = `${found.total} · ${t("step")} ${found.histograms[0].step}–${found.histograms.at(-1).step}`;
    }).observe(card);
  }
  return el("section", { class: "family" }, el("h2", { text: t("histograms") }), grid);
}

// Steps from left to right, values from bottom to top; the denser the values, the darker.
function drawHistograms(canvas, histograms) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  const low = Math.min(...histograms.map((one) => one.edges[0]));
  const high = Math.max(...histograms.map((one) => one.edges.at(-1)));
  const y = (v) => height - 4 - ((v - low) / (high - low || 1)) * (height - 8);
  const wide = width / histograms.length;
  ctx.fillStyle = seriesColour(0);
  histograms.forEach(({ counts, edges }, i) => {
    const densities = counts.map((count, j) => count / (edges[j + 1] - edges[j] || 1));
    const densest = Math.max(...densities) || 1;
    densities.forEach((density, j) => {
      const top = y(edges[j + 1]);
      ctx.globalAlpha = Math.min(1, density / densest);
      ctx.fillRect(i * wide, top, Math.max(1, wide - 0.5), Math.max(1, y(edges[j]) - top));
    });
  });
}
