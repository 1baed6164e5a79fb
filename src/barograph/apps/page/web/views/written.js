// Reports that people write: the list of them, or one of them.
import { report } from "../data/report.js";
import { getState } from "../data/url_state.js";
import { listOfReports } from "../notes/report_list.js";
import { ReportPage } from "../notes/report_page.js";

export function writtenView(host, context) {
  return report || getState("report") ? new ReportPage(host, context) : listOfReports(host, context);
}
