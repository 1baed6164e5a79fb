export function timeView(host, context) { return {}; }
