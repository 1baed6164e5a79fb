export function evaluationView(host, context) { return {}; }
