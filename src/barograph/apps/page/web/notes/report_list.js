// The list of reports.
import { fetchReports, saveReport } from "../data/reports.js";
import { selection } from "../data/selection.js";
import { dateText, t } from "../text/language.js";
import { html, render } from "../ui/html.js";
import { offerUndo } from "../ui/toast.js";
import { emptyState, stateLink } from "../ui/widgets.js";
import { attempt, beginReport } from "./new_report.js";

export function listOfReports(host, context) {
  const read = async () => {
    try {
      render(list(await fetchReports(), read), host);
    } catch (problem) {
      context.fail(problem);
    }
  };
  document.title = `${t("report")} · barograph`;
  render(list(null, read), host);
  read();
  return { changed: (names) => names.includes("report") && context.rerender() };
}

// `all` is null until the reports are known; `read` reads them again.
function list(all, read) {
  return html`<div class="bar">
      <h1 class="bar-title">${t("report")}</h1>
      <button class="primary" @click=${() => beginReport(selection())}>+ ${t("report_new")}</button>
    </div>
    <p class="quiet report-intro">${t("reports_what")}</p>
    <div class="report-list">${all?.length === 0 ? emptyState(t("reports_none")) : all?.map((one) => row(one, read))}</div>`;
}

function row({ name, saved }, read) {
  const remove = () => attempt(() => deleteReport(name, read));
  return html`<div class="card report-row">
    ${stateLink({ report: name }, { class: "report-name", text: name })}
    <span class="quiet">${t("report_saved", { d: dateText(saved) })}</span>
    <button class="ghost" aria-label="${t("report_delete")}: ${name}" @click=${remove}>${t("report_delete")}</button>
  </div>`;
}

export async function deleteReport(name, after) {
  const text = await saveReport(name, null);
  await after();
  offerUndo(t("report_deleted", { n: name }), async () => {
    await saveReport(name, text);
    await after();
  });
}
