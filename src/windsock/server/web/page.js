// A first page: the list of runs, live. Everything that was logged is shown as text, never as markup.
const rows = new Map();
let cursor = null;

async function update() {
  const answer = await fetch(cursor ? `/api/runs?since=${encodeURIComponent(cursor)}` : "/api/runs");
  const list = await answer.json();
  if (list.reset) rows.clear();
  list.gone.forEach((key) => rows.delete(key));
  list.runs.forEach((run) => rows.set(run.key, run));
  cursor = list.cursor;
  draw();
}

function draw() {
  document.querySelector("table").hidden = rows.size === 0;
  document.querySelector("#state").textContent = rows.size ? `${rows.size} runs` : "No runs yet.";
  const shown = [...rows.values()].filter((run) => !run.hidden).sort((a, b) => b.pinned - a.pinned || b.began - a.began);
  document.querySelector("#runs").replaceChildren(...shown.map(line));
}

function line(run) {
  const cells = [run.name, run.project, run.status, run.last_step ?? "–", run.reward ? run.reward.last : "–"];
  const row = document.createElement("tr");
  for (const cell of cells) row.insertCell().textContent = String(cell);
  return row;
}

new EventSource("/api/live").addEventListener("runs", update);
update();
