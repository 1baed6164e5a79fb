// Histograms over steps as heat maps.
import { fetchJson, runPath } from "../data/api.js";
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { cssVariable, seriesColour } from "../ui/colours.js";
import { cutMiddle } from "../ui/cut_text.js";
import { el } from "../ui/dom.js";
import { clamp } from "./curve_math.js";
import { linearTicks, tickLabels } from "./ticks.js";

const LEFT = 50;
const BOTTOM = 20;
const TOP = 6;

// A section with a card per name; each fetches its histograms when it comes into view.
export function histogramSection(names, context) {
  const make = () => names.map((name) => ({ node: histogramCard(name, context) }));
  return { key: "histograms", title: t("histograms"), intro: "", count: names.length, make, fetchesItself: true };
}

function histogramCard(name, context) {
  const canvas = el("canvas", { class: "histogram", role: "img", "aria-label": name });
  const total = el("span", { class: "quiet unit" });
  const caption = el("div", { class: "quiet histogram-caption" });
  const card = el(
    "article",
    { class: "card chart", "data-name": name },
    el("header", {}, el("div", { class: "names" }, el("h3", { title: name }, cutMiddle(name)), total), caption),
    canvas,
  );
  new IntersectionObserver(async (entries, self) => {
    if (!entries[0].isIntersecting) return;
    self.disconnect();
    const found = await fetchJson(runPath(context.run, "histograms"), { name, points: 40 });
    total.textContent = t("histogram_count", { n: found.total });
    showHistograms(canvas, caption, found.histograms, name);
  }).observe(card);
  return card;
}

function showHistograms(canvas, caption, histograms, name) {
  const draw = () => drawHistograms(canvas, histograms);
  const show = (i) => caption.replaceChildren(el("span", { text: histogramText(histograms[i]) }));
  const indexAt = ({ offsetX }) => Math.floor(((offsetX - LEFT) / (canvas.clientWidth - LEFT)) * histograms.length);
  const last = histograms.length - 1;
  canvas.setAttribute("aria-label", `${name}: ${histogramText(histograms[0])}; ${histogramText(histograms[last])}`);
  canvas.addEventListener("pointermove", (event) => show(clamp(indexAt(event), 0, last)));
  canvas.addEventListener("pointerleave", () => show(last));
  new ResizeObserver(draw).observe(canvas);
  show(last);
}

function histogramText({ step, count, min, max, sum, nonfinite }) {
  const facts = [
    step === null ? "" : t("at_step", { n: step }),
    t("values_count", { n: count }),
    `${formatNumber(min)} – ${formatNumber(max)}`,
    count ? `${t("mean")} ${formatNumber(sum / count)}` : "",
    nonfinite ? t("nonfinite", { n: nonfinite }) : "",
  ];
  return facts.filter(Boolean).join(" · ");
}

// Steps from left to right, values from bottom to top; the denser the values, the darker.
function drawHistograms(canvas, histograms) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (width <= LEFT || height <= BOTTOM + TOP) return;
  const ctx = sharpContext(canvas, width, height);
  const low = Math.min(...histograms.map((one) => one.edges[0]));
  const high = Math.max(...histograms.map((one) => one.edges.at(-1)));
  const y = (v) => height - BOTTOM - ((v - low) / (high - low || 1)) * (height - BOTTOM - TOP);
  const wide = (width - LEFT) / histograms.length;
  drawAxes(ctx, histograms, { width, height, y, wide, range: [low, high] });
  ctx.fillStyle = seriesColour(0);
  histograms.forEach(({ counts, edges }, i) => {
    const densities = counts.map((count, j) => count / (edges[j + 1] - edges[j] || 1));
    const densest = Math.max(...densities) || 1;
    densities.forEach((density, j) => {
      const top = y(edges[j + 1]);
      ctx.globalAlpha = Math.min(1, density / densest);
      ctx.fillRect(LEFT + i * wide, top, Math.max(1, wide - 0.5), Math.max(1, y(edges[j]) - top));
    });
  });
}

function sharpContext(canvas, width, height) {
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  const ctx = canvas.getContext("2d");
  ctx.scale(devicePixelRatio, devicePixelRatio);
  return ctx;
}

// Values at the left with grid lines, steps below.
function drawAxes(ctx, histograms, { width, height, y, wide, range }) {
  const ticks = range[0] < range[1] ? linearTicks(range, 4) : [range[0]];
  ctx.font = `11px ${cssVariable("--font")}`;
  ctx.textAlign = "right";
  tickLabels(ticks).forEach((label, i) => {
    ctx.fillStyle = cssVariable("--hair");
    ctx.fillRect(LEFT, y(ticks[i]), width - LEFT, 1);
    ctx.fillStyle = cssVariable("--quiet");
    ctx.fillText(label, LEFT - 6, clamp(y(ticks[i]) + 4, 10, height - BOTTOM + 2));
  });
  const every = Math.ceil(48 / wide);
  ctx.textAlign = "center";
  for (let i = 0; i < histograms.length; i += every) {
    ctx.fillText(String(histograms[i].step ?? "–"), clamp(LEFT + (i + 0.5) * wide, LEFT + 8, width - 14), height - 5);
  }
}
