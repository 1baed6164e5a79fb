// Which requests of data and of modules are under way, so that the page can show that it waits.

const SLOW_MS = 400; // shorter waits are not worth a sign
let pending = 0;

// Count a request until it is answered.
export async function track(request) {
  pending++;
  const timer = setTimeout(tell, SLOW_MS);
  try {
    return await request;
  } finally {
    pending--;
    clearTimeout(timer);
    if (!pending) tell();
  }
}

export function isLoading() {
  return pending > 0;
}

function tell() {
  dispatchEvent(new CustomEvent("loading"));
}
