// The names that are drawn apart although other runs log something alike, with the reasons.
import { runs } from "../data/runs.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { panel, table } from "../ui/widgets.js";

export function notComparablePanel({ refused }) {
  if (!refused.length) return null;
  const rows = refused.map((one) => [runs.get(one.run)?.name ?? one.run, one.name, localized(one.reason)]);
  return panel(
    t("refused"),
    String(rows.length),
    el("p", { class: "quiet", text: t("refused_intro") }),
    table([t("run"), t("name"), t("why_not")], rows, "refused"),
  );
}
