// The doctor's verdict with its findings, the crucial values, and how many rules found nothing or could not judge.
import { severityWord } from "../charts/marks.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { html, nothing } from "../ui/html.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { stateLink, statusDot, verdictBanner } from "../ui/widgets.js";
import { chartLink, findingLink } from "./links.js";

export function banner(data, evidence) {
  const { word, reasons } = data.health;
  const all = withExplained(data.findings);
  return verdictBanner(
    word,
    reasons.length ? html`<p class="quiet">${reasons.map(localized).join("; ")}</p>` : nothing,
    all.length ? html`<ul class="crucial findings">${data.findings.map(findingItem)}</ul>` : nothing,
    data.evidence.length ? evidence : nothing,
    html`<ul class="crucial">${data.crucial.map((one) => crucialItem(one, all, data.metrics))}</ul>`,
    data.names ? lookedLink(data.checked) : nothing,
  );
}

function findingItem(finding) {
  const text = [localized(finding.text), explained(finding)].filter(Boolean).join(" ");
  return html`<li>${statusDot(severityWord(finding.severity))}${findingLink(finding, localized(finding.title))}
    <span class="since">${t("since_step", { n: finding.onset })}</span><span>${text}</span></li>`;
}

// A value with a finding leads to it: the sentence is said above, or in Findings.
function crucialItem(one, findings, metrics) {
  const found = findings.find((finding) => localized(finding.text) === localized(one.text));
  const title = el("b", { text: localized(one.title) });
  const said = found ? findingLink(found, localized(found.title)) : el("span", { text: localized(one.text) });
  const item = el("li", {}, statusDot(one.word), one.name && !found ? chartLink(one.name, title) : title, said);
  return addTooltip(item, () => metricTooltip(metrics[one.metric], one.name ? [one.name] : [], one.note));
}

function lookedLink({ fine, unmeasured }) {
  const text = `${t("looked", { n: fine, m: unmeasured })} →`;
  return stateLink({ tab: "findings", finding: "" }, { class: "quiet looked", text });
}

// The findings that another one explains, in a sentence.
function explained(finding) {
  const titles = finding.explains.filter((one) => one.severity !== "info").map((one) => localized(one.title));
  return titles.length ? t("explains", { n: titles.join(", ") }) : "";
}

// Findings, each followed by those above info that it explains.
export function withExplained(findings) {
  return findings.flatMap((one) => [one, ...one.explains.filter((inner) => inner.severity !== "info")]);
}
