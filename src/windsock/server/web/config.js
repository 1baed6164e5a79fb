// Who a run is: its config, the system it ran on, its writers, the relay to trackers, texts and events.
import { ask, runPath } from "./api.js";
import { bytes, el, once, plain, seconds } from "./dom.js";
import { filterBox, panel, table } from "./parts.js";
import { runs } from "./runs.js";
import { get } from "./state.js";
import { t } from "./words.js";

export function configView(host, context) {
  const filter = filterBox(t("filter_config"));
  const config = el("div");
  let data = null;

  function drawConfig() {
    const wanted = get("filter").toLowerCase();
    const rows = data.config_flat
      .map(([key, value]) => [key, plain(value)])
      .filter(([key, value]) => `${key} ${value}`.toLowerCase().includes(wanted));
    config.replaceChildren(
      rows.length
        ? table([t("key"), t("value")], rows, "kv")
        : el("p", { class: "quiet", text: data.config_flat.length ? t("nothing_found") : t("no_config") }),
    );
  }

  async function read() {
    try {
      data = await ask(runPath(context.run, "details"));
    } catch (problem) {
      return context.fail(problem);
    }
    const texts = await ask(runPath(context.run, "texts"), { since: -200 });
    const events = await ask(runPath(context.run, "events"), { since: -200 });
    if (!host.isConnected) return;
    drawConfig();
    host.replaceChildren(
      el(
        "div",
        { class: "pair" },
        panel(t("config"), filter, config),
        el(
          "div",
          {},
          panel(t("about_run"), "", aboutRun(context.run, data)),
          system(data),
          writers(data),
          relay(data),
          troubles(data),
        ),
      ),
      textPanel(texts) ?? "",
      eventPanel(events) ?? "",
    );
  }

  const redraw = once(120, drawConfig);
  read();
  return { changed: (names) => names.includes("filter") && data && redraw() };
}

function aboutRun(key, data) {
  const run = runs.get(key) ?? {};
  const rows = [
    [t("name"), data.info.name],
    ["id", data.info.id],
    [t("project"), run.project],
    [t("status"), `${t(run.status ?? "unknown")} ${run.reason ?? ""}`],
    [t("vocabulary"), run.vocabulary],
    [t("since"), run.began ? new Date(run.began * 1000).toLocaleString() : "–"],
    [t("took"), seconds(run.seconds)],
    [t("size"), bytes(run.bytes)],
    [t("tags"), (run.tags ?? []).join(", ")],
    [t("note"), run.note || run.notes || ""],
  ];
  return table(
    ["", ""],
    rows.filter(([, value]) => value),
    "kv bare",
  );
}

function system(data) {
  const flat = [];
  const walk = (value, path) => {
    if (value && typeof value === "object" && !Array.isArray(value))
      Object.entries(value).forEach(([name, one]) => walk(one, path ? `${path}.${name}` : name));
    else if (value !== null && value !== undefined && String(value) !== "")
      flat.push([path, Array.isArray(value) ? value.map(plain).join(" ") : plain(value)]);
  };
  walk(data.environment ?? {}, "");
  return flat.length ? panel(t("system"), "", table(["", ""], flat, "kv bare")) : "";
}

function writers(data) {
  const rows = data.writers.map((one) => [one.role, one.rank, one.attempt, `${t(one.status)} ${one.reason}`]);
  return panel(t("writers"), String(rows.length), table([t("role"), t("rank"), t("attempt"), t("status")], rows));
}

function relay(data) {
  const rows = data.relay.map((one) => [one.tracker, one.state, one.delivered, one.lag, one.dropped, one.error ?? ""]);
  return panel(
    t("relay"),
    "",
    rows.length
      ? table([t("tracker"), t("state"), t("delivered"), t("lag"), t("dropped"), t("error")], rows)
      : el("p", { class: "quiet", text: t("no_relay") }),
  );
}

function troubles(data) {
  const parts = [];
  const lines = (title, all) =>
    all.length &&
    parts.push(
      panel(
        title,
        String(all.length),
        el(
          "ul",
          { class: "notices" },
          all.map((text) => el("li", { text })),
        ),
      ),
    );
  lines(t("notices"), data.notices.map(plain));
  lines(t("damage"), data.damage.map(plain));
  lines(
    t("skipped"),
    data.skipped.map((one) => `${one.name}: ${one.reason} × ${one.count}`),
  );
  return parts;
}

function textPanel(texts) {
  if (!texts.texts.length) return null;
  const rows = texts.texts.map((one) =>
    el(
      "div",
      {},
      el("p", { class: "facts" }, el("b", { text: one.name }), el("span", { text: `${t("step")} ${one.step ?? "–"}` })),
      el("pre", { text: one.text }),
    ),
  );
  return panel(t("texts"), String(texts.total), rows);
}

function eventPanel(events) {
  if (!events.events.length) return null;
  const rows = events.events.reverse().map((one) => {
    const { time, event, ...rest } = one;
    return [
      time ? new Date(time * 1000).toLocaleString() : "–",
      event ?? "",
      el("code", { text: JSON.stringify(rest) }),
    ];
  });
  return panel(t("events"), String(events.total), table(["", "", ""], rows));
}
