export function samplesView(host, context) { return {}; }
