export function configView(host, context) { return {}; }
