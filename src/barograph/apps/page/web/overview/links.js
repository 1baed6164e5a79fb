// Links of the Overview, to charts and to findings.
import { severityWord } from "../charts/marks.js";
import { findingKey } from "../data/marks.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { addTooltip } from "../ui/tooltip.js";
import { stateLink, statusDot } from "../ui/widgets.js";

// A link to the chart of a logged name, among those of its family.
export function chartLink(name, ...children) {
  const states = { tab: "charts", look: name, chart: "", filter: "" };
  return stateLink(states, { class: "chart-link", title: t("show_chart") }, ...children);
}

// A link to a finding, with what to look at next as its tooltip.
export function findingLink(finding, text) {
  const link = stateLink({ tab: "findings", finding: findingKey(finding) }, { class: "finding-link", text });
  return addTooltip(link, () => finding.advice.map((one) => el("p", { text: localized(one) })));
}

// A dot that leads to the finding about a value.
export function troubleLink(finding) {
  const link = findingLink(finding, "");
  link.append(statusDot(severityWord(finding.severity)));
  link.setAttribute("aria-label", localized(finding.title));
  link.title = `${localized(finding.title)} · ${t("since_step", { n: finding.onset })}`;
  return link;
}
