// The Config view: config, system, writers, relay, texts and events.
import { fetchJson, runPath } from "../data/api.js";
import { runs } from "../data/runs.js";
import { getState } from "../data/url_state.js";
import { formatBytes, formatConfigValue, formatSeconds } from "../text/format.js";
import { dateText, t } from "../text/language.js";
import { breakable } from "../ui/cut_text.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { filterField, listPanel, panel, table } from "../ui/widgets.js";

export function configView(host, context) {
  const filterBox = filterField(t("filter_config"));
  const config = el("div");
  let data = null;

  function drawConfig() {
    const filter = getState("filter").toLowerCase();
    const rows = data.config_flat
      .map(([key, value]) => [key, formatConfigValue(value)])
      .filter(([key, value]) => `${key} ${value}`.toLowerCase().includes(filter));
    config.replaceChildren(
      rows.length
        ? table(
            [t("key"), t("value")],
            rows.map(([key, value]) => [breakable(key), value]),
            "kv",
          )
        : el("p", { class: "quiet", text: data.config_flat.length ? t("nothing_found") : t("no_config") }),
    );
  }

  async function read() {
    const ask = (what, query) => fetchJson(runPath(context.run, what), query);
    const asked = [ask("details"), ask("texts", { since: -200 }), ask("events", { since: -200 })];
    const found = await context.load(Promise.all(asked));
    if (!found) return;
    const [details, texts, events] = found;
    data = details;
    drawConfig();
    host.replaceChildren(
      el(
        "div",
        { class: "pair" },
        panel(t("config"), filterBox, config),
        el(
          "div",
          {},
          panel(t("about_run"), "", runFacts(context.run, data)),
          systemPanel(data),
          writersPanel(data),
          relayPanel(data),
          problems(data),
        ),
      ),
      textPanel(texts) ?? "",
      eventPanel(events) ?? "",
    );
  }

  const redraw = debounce(120, drawConfig);
  read();
  return { changed: (names) => names.includes("filter") && data && redraw() };
}

function runFacts(key, data) {
  const run = runs.get(key) ?? {};
  const rows = [
    [t("name"), data.info.name],
    ["id", data.info.id],
    [t("project"), run.project],
    [t("status"), `${t(run.status ?? "unknown")} ${run.reason ?? ""}`],
    [t("vocabulary"), run.vocabulary],
    [t("since"), run.began ? dateText(run.began) : "–"],
    [t("took"), formatSeconds(run.seconds)],
    [t("size"), formatBytes(run.bytes)],
    [t("tags"), (data.info.tags ?? []).join(", ")],
    [t("new_note"), run.note || data.info.notes || ""],
    [t("path"), data.path],
    ...originFacts(data),
  ];
  return table(
    ["", ""],
    rows.filter(([, value]) => value),
    "kv bare",
  );
}

/** The log of another program that a run was read from: where it is, its format, and how it was read. */
function originFacts(data) {
  const { origin } = data;
  if (!origin) return [];
  return [
    [t("log_file"), origin.path === data.path ? "" : origin.path],
    [t("format"), origin.title],
    [t("reading"), origin.notes.join("; ")],
  ];
}

function systemPanel(data) {
  const flat = [];
  const walk = (value, path) => {
    if (value && typeof value === "object" && !Array.isArray(value)) {
      for (const [name, one] of Object.entries(value)) walk(one, path ? `${path}.${name}` : name);
    } else if (value !== null && value !== undefined && String(value) !== "")
      flat.push([path, Array.isArray(value) ? value.map(formatConfigValue).join(" ") : formatConfigValue(value)]);
  };
  walk(data.environment ?? {}, "");
  return flat.length ? panel(t("system"), "", table(["", ""], flat, "kv bare")) : "";
}

function writersPanel(data) {
  const rows = data.writers.map((one) => [one.role, one.rank, one.attempt, `${t(one.status)} ${one.reason}`]);
  return panel(t("writers"), String(rows.length), table([t("role"), t("rank"), t("attempt"), t("status")], rows));
}

function relayPanel(data) {
  const rows = data.relay.map((one) => [
    one.tracker,
    one.state,
    one.delivered,
    one.lag_bytes ? `${one.lag}, ${formatBytes(one.lag_bytes)}` : one.lag,
    one.dropped,
    one.error ?? "",
  ]);
  return panel(
    t("relay"),
    "",
    rows.length
      ? table([t("tracker"), t("state"), t("delivered"), t("lag"), t("dropped"), t("error")], rows)
      : el("p", { class: "quiet", text: t("no_relay") }),
  );
}

function problems(data) {
  const skipped = data.skipped.map((one) => `${one.name}: ${one.reason} × ${one.count}`);
  const lists = [
    [t("notices"), data.notices.map(formatConfigValue)],
    [t("damage"), data.damage.map(formatConfigValue)],
    [t("skipped"), skipped],
  ];
  return lists.filter(([, texts]) => texts.length).map(([title, texts]) => listPanel(title, texts));
}

function textPanel(texts) {
  if (!texts.texts.length) return null;
  const rows = texts.texts.map((one) =>
    el(
      "div",
      {},
      el(
        "p",
        { class: "facts" },
        el("b", { text: one.name }),
        el("span", { text: t("at_step", { n: one.step ?? "–" }) }),
      ),
      el("pre", { text: one.text }),
    ),
  );
  return panel(t("texts"), String(texts.total), rows);
}

function eventPanel(events) {
  if (!events.events.length) return null;
  const rows = events.events.reverse().map((one) => {
    const { time, event, ...rest } = one;
    return [time ? dateText(time) : "–", event ?? "", el("code", { text: JSON.stringify(rest) })];
  });
  return panel(t("events"), String(events.total), table([t("time_of"), t("event"), t("fields")], rows, "events"));
}
