export function compareView(host, context) { return {}; }
