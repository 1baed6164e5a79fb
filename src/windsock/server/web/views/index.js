// The views by the name of their tab.
import { report } from "../data/report.js";
import { chartsView } from "./charts.js";
import { compareView } from "./compare.js";
import { configView } from "./config.js";
import { evaluationView } from "./evaluation.js";
import { findingsView } from "./findings.js";
import { memoryView } from "./memory.js";
import { namesView } from "./names.js";
import { overviewView } from "./overview.js";
import { samplesView } from "./samples.js";
import { timeView } from "./time.js";

export const VIEWS = {
  overview: overviewView,
  charts: chartsView,
  time: timeView,
  memory: memoryView,
  evaluation: evaluationView,
  samples: samplesView,
  findings: findingsView,
  compare: compareView,
  config: configView,
  names: namesView,
};

export const TABS = Object.keys(VIEWS).filter((tab) => !report || tab !== "compare");
