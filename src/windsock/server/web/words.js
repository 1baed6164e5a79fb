// The page's own words, in English and Chinese. What the catalogue says comes from the server in both.
import { get, kept } from "./state.js";

// A lone text is the Chinese one: the English one is the key.
const WORDS = {
  overview: ["Overview", "总览"], charts: ["Charts", "图表"], time: ["Time", "时间"], memory: ["Memory", "显存"],
  evaluation: ["Evaluation", "评测"], samples: ["Samples", "样本"], compare: ["Compare", "对比"], config: ["Config", "配置"],
  running: "运行中", finished: "已结束", crashed: "已崩溃", stalled: "无响应",
  unknown: "未知", killed: "被终止",
  step: "步", runs: "个实验",
  filter_runs: ["Filter runs  ( / )", "筛选实验  ( / )"], sort: ["Sort", "排序"],
  by_began: ["newest", "最新"], by_name: ["name", "名称"], by_reward: ["reward", "奖励"], by_status: ["status", "状态"],
  by_heard: ["last heard", "最近活动"],
  overlay: "叠加", pin: ["Pin", "置顶"], unpin: ["Unpin", "取消置顶"], rename: ["Rename …", "重命名 …"],
  hide: ["Hide", "隐藏"], unhide: ["Show again", "取消隐藏"], note: ["Note …", "备注 …"], menu: ["More", "更多"],
  hidden_runs: ["show {n} hidden", "显示 {n} 个隐藏的"], hide_again: ["hide the hidden", "收起隐藏的"],
  no_runs: ["No runs here yet.", "这里还没有实验。"],
  no_runs_do: ["Log one with windsock.init(…) into this directory; it will appear by itself.", "用 windsock.init(…) 在此目录记录一个实验，它会自动出现。"],
  no_match: ["No run matches the filter.", "没有符合筛选的实验。"],
  new_name: ["Name on the page (empty: as logged)", "页面上的名称（留空则用记录时的名称）"], new_note: ["Note", "备注"],
  health_good: ["Healthy", "状态健康"], health_watch: ["Worth a look", "值得留意"], health_bad: ["Something is wrong", "出现问题"],
  health_unknown: ["Too early to tell", "尚难判断"],
  from: "起于", healthy_band: "健康区间", as_logged: "记录名",
  copy: ["Copy the name", "复制名称"], copied: "已复制",
  looks: ["Healthy:", "健康时："], next: ["If not:", "若不是："],
  not_logged: ["Not logged by this run", "该实验未记录"], nonfinite: ["{n} not finite", "{n} 个非有限值"],
  where_step: ["Where a step goes", "一步的时间去向"], stacked: ["seconds, stacked", "秒，堆叠"], unaccounted: "未计入",
  notices: ["Notices", "提示"], no_metrics: ["No metrics yet.", "还没有指标。"],
  no_metrics_do: ["They appear as soon as the run logs its first step.", "实验记录第一步后就会出现。"],
  filter: ["Filter: regular expression  ( / )", "筛选：正则表达式  ( / )"], bad_regex: ["not a regular expression yet", "还不是正则表达式"],
  x_axis: "横轴", x_step: ["step", "步"], x_time: ["wall time", "时刻"], x_relative: ["relative time", "相对时间"],
  x_tokens: ["tokens", "token 数"], x_samples: ["samples", "样本数"], smoothing: ["smooth", "平滑"], log: "对数",
  reset_zoom: "重置缩放", pinned: ["Pinned", "已置顶"], maximise: ["Maximise", "最大化"], close: ["Close", "关闭"],
  png: ["Download PNG", "下载 PNG"], csv: ["Download CSV", "下载 CSV"], shown: ["{n} of {m} charts", "{n} / {m} 个图表"],
  histograms: ["Histograms", "直方图"], nothing_found: ["Nothing matches.", "没有匹配项。"],
  log_cut: ["log: values ≤ 0 are not shown", "对数轴：不显示 ≤ 0 的值"], buckets: ["{n} points, {m} drawn with their true extremes", "{n} 个点，以真实极值画出 {m} 段"],
  points: ["{n} points", "{n} 个点"],
  search_samples: ["Search prompts and completions  ( / )", "搜索提示与回复  ( / )"], advantage: "优势",
  length: "长度", finish: "结束原因", task: "任务", group: "组",
  at_least: ["reward ≥", "奖励 ≥"], at_most: ["reward ≤", "奖励 ≤"], long_least: ["length ≥", "长度 ≥"], long_most: ["length ≤", "长度 ≤"],
  s_new: ["newest step", "最新步"], s_old: ["oldest step", "最早步"], s_high: ["highest reward", "奖励最高"],
  s_low: ["lowest reward", "奖励最低"], s_long: ["longest", "最长"], s_adv: ["largest advantage", "优势最大"],
  matched: ["{n} of {m} kept ({s} seen)", "匹配 {n} / 保留 {m}（共见 {s}）"], older_page: ["more", "更多"],
  no_samples: ["This run kept no samples.", "该实验没有保留样本。"],
  no_samples_do: ["run.sample(prompt, completion, reward=…) keeps them.", "用 run.sample(prompt, completion, reward=…) 保留。"],
  prompt: ["Prompt", "提示"], mean_reward: ["mean reward of a step", "每步平均奖励"], all_numbers: "全部数值", completion: ["Completion", "回复"], group_of: ["The group of this prompt at step {n}", "该提示在第 {n} 步的整组"],
  over_training: ["The same prompt over training", "同一提示随训练的变化"],
  version: ["weights", "权重版本"],
  seconds: "秒", share: ["share of step", "占比"], per_step: ["mean per step", "每步平均"], click_step: ["click a bar for its step", "点击柱子查看该步"],
  one_step: ["Step {n} laid out", "第 {n} 步的时间线"], onload: "载入", execute: "执行", offload: "卸载",
  overlap: "重叠", phase: "阶段", mean: "均值", max: "最大", count: "次数",
  slowest: "最慢", slow_ranks: ["Ranks, the slowest first", "各 rank，最慢在前"],
  phases_title: ["Phases", "各阶段"], no_phases: ["This run recorded no phases and no times.", "该实验没有记录阶段或时间。"],
  no_phases_do: ["with run.phase(\"…\"): around the parts of a step records them.", "用 with run.phase(\"…\"): 包住一步中的各部分即可记录。"],
  no_spans: ["The times come from metrics; a timeline of single steps needs run.phase(…).", "时间取自指标；单步时间线需要 run.phase(…)。"],
  stairs: ["Memory through step {n}", "第 {n} 步的显存变化"], device: "设备", allocated: "已分配", reserved: "已保留",
  peak: "峰值", capacity: "容量", peaks: ["Peaks over steps", "各步峰值"], host: ["Host memory", "主机内存"],
  no_memory: ["This run recorded no memory.", "该实验没有记录显存。"],
  no_memory_do: ["run.phase(…) reads it on a GPU, and the host's too with memory=\"full\".", "run.phase(…) 会在 GPU 上读取；memory=\"full\" 时也读取主机内存。"],
  first: "最初", last: "最新", statistic: "统计量", over_k: ["over k, first and last", "随 k 变化，最初与最新"],
  coverage: ["Coverage", "覆盖"], no_eval: ["This run recorded no evaluation.", "该实验没有记录评测。"],
  tasks_expected: "应有任务", tasks_observed: "已见任务", tasks_partial: "不全任务",
  tasks_failed: "失败任务", runs_expected: "应有轨迹", runs_observed: "已见轨迹",
  runs_failed: "失败轨迹", late: "迟到",
  no_eval_do: ["run.evaluation(\"gsm8k\", step=…, repeats=4) records one.", "用 run.evaluation(\"gsm8k\", step=…, repeats=4) 记录。"],
  choose_two: ["Choose two or more runs in the list: the squares on the left overlay them.", "请在列表中选择两个或更多实验：点击左侧方块即可叠加。"],
  refused: ["Not comparable", "不可比较"], refused_intro: ["These names are not drawn together, because their numbers mean different things.", "这些名称的数值含义不同，因此不叠加显示。"],
  config_diff: ["Config: what differs", "配置差异"], same_config: ["The configs are the same.", "配置相同。"], phase_diff: ["Seconds per step by phase", "各阶段每步用时"],
  absent: "无", name: "名称", why_not: ["why", "原因"], run: "实验", key: "键", value: "值",
  filter_config: ["Filter keys and values  ( / )", "筛选键和值  ( / )"], about_run: ["Run", "实验"], system: ["System", "系统"], writers: ["Writers", "写入者"],
  relay: ["Relay", "转发"], texts: ["Texts", "文本"], events: ["Events", "事件"], damage: ["Damage", "损坏"], skipped: ["Not logged", "未记录"],
  tracker: "追踪器", state: "状态", delivered: "已送达", lag: "滞后", dropped: "丢弃", error: "错误",
  role: "角色", attempt: "尝试", status: "状态", no_relay: ["No tracker is fed by this run.", "该实验没有转发到追踪器。"],
  no_config: ["No config was given to windsock.init.", "windsock.init 未给出配置。"],
  keys: ["Keys", "快捷键"], k_filter: ["filter", "筛选"], k_next: ["next, previous run", "下一个、上一个实验"], k_tabs: ["tabs", "标签页"],
  k_full: ["the chart under the pointer, large", "放大指针下的图表"], k_reset: ["reset the zoom", "重置缩放"], k_help: ["this help", "本帮助"],
  k_drag: ["zoom x on all charts", "缩放所有图表的横轴"], drag: "拖动", double: ["double-click", "双击"], k_esc: ["close", "关闭"],
  theme: ["Light or dark", "浅色或深色"], language: ["中文", "English"], skip: ["Skip to the content", "跳到正文"],
  since: ["began", "开始"], took: "用时", project: "项目", vocabulary: "词汇", tags: "标签", size: "大小",
  lost: ["The server is not answering; trying again.", "服务器没有响应，正在重试。"], report_made: ["report of {d}", "报告生成于 {d}"],
  of_capacity: ["{p} of {c}", "{c} 的 {p}"], list: ["Runs", "实验列表"], families: ["Families", "分组"],
};

const LANGUAGES = ["en", "zh"];

export function language() {
  const chosen = get("lang") || kept("lang") || (navigator.language?.startsWith("zh") ? "zh" : "en");
  return LANGUAGES.includes(chosen) ? chosen : "en";
}

export function t(key, values = {}) {
  const pair = WORDS[key];
  const zh = language() === "zh";
  const text = Array.isArray(pair) ? pair[zh ? 1 : 0] : (zh && pair) || key.replaceAll("_", " ");
  return text.replace(/\{(\w)\}/g, (_, name) => values[name] ?? "");
}

// What the server says in both languages.
export function say(text) {
  if (text === null || text === undefined) return "";
  return typeof text === "string" ? text : (text[language()] ?? text.en ?? "");
}
