// Scheduling: work spread over frames, debouncing and throttling.

const FRAME_MS = 10; // of a frame's 16 ms, so that scrolling stays smooth
const queue = new Set();

// Run work in one of the next frames.
export function scheduleInFrame(work) {
  if (!queue.size) requestAnimationFrame(runQueue);
  queue.add(work);
}

function runQueue() {
  const end = performance.now() + FRAME_MS;
  for (const work of queue) {
    queue.delete(work);
    work();
    if (performance.now() > end) break;
  }
  if (queue.size) requestAnimationFrame(runQueue);
}

// Run work once, `wait` milliseconds after the last call.
export function debounce(wait, work) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), wait);
  };
}

// Run work at most every `wait` milliseconds, and once more after the last call.
export function throttle(wait, work) {
  let last = 0;
  let timer = null;
  const run = () => {
    last = Date.now();
    work();
  };
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, Math.max(0, last + wait - Date.now()));
  };
}
