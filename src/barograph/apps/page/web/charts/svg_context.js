// A drawing context that writes SVG instead of pixels, with what the drawing of curves needs of a canvas.

export class SvgContext {
  constructor() {
    this.parts = [];
    this.path = [];
    this.dash = [];
    this.strokeStyle = this.fillStyle = "#000";
    this.lineWidth = this.globalAlpha = 1;
    this.lineJoin = "round";
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  beginPath() {
    this.path = [];
  }

  moveTo(x, y) {
    this.path.push(`M${short(x)} ${short(y)}`);
  }

  // On a canvas too, the first point of a path begins it.
  lineTo(x, y) {
    this.path.push(`${this.path.length ? "L" : "M"}${short(x)} ${short(y)}`);
  }

  // Only whole circles are drawn.
  arc(x, y, radius) {
    const half = `a${short(radius)} ${short(radius)} 0 1 0`;
    this.path.push(`M${short(x - radius)} ${short(y)}${half} ${short(2 * radius)} 0${half} ${short(-2 * radius)} 0`);
  }

  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    this.addPath(`fill="none" stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}"${dash}`, "stroke");
  }

  fill() {
    this.addPath(`fill="${this.fillStyle}"`, "fill");
  }

  addPath(style, kind) {
    if (!this.path.length) return;
    const alpha = this.globalAlpha === 1 ? "" : ` ${kind}-opacity="${this.globalAlpha}"`;
    this.parts.push(`<path d="${this.path.join("")}" ${style}${alpha} stroke-linejoin="${this.lineJoin}"/>`);
  }

  rect(x, y, width, height, colour) {
    const size = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
    this.parts.push(`<rect ${size} fill="${colour}"/>`);
  }

  text(text, x, y, { size = 12, anchor = "start", weight = 400, colour }) {
    const place = `x="${short(x)}" y="${short(y)}" text-anchor="${anchor}"`;
    this.parts.push(
      `<text ${place} font-size="${size}" font-weight="${weight}" fill="${colour}">${escaped(text)}</text>`,
    );
  }

  // What `work` draws, cut off outside a box.
  clipped(id, { left, top, width, height }, work) {
    const outer = this.parts;
    this.parts = [];
    work();
    const box = `<rect x="${left}" y="${top}" width="${width}" height="${height}"/>`;
    outer.push(`<clipPath id="${id}">${box}</clipPath><g clip-path="url(#${id})">${this.parts.join("")}</g>`);
    this.parts = outer;
  }
}

// Two digits after the point are enough for a picture, and keep the file small.
function short(value) {
  return Number(value.toFixed(2));
}

function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
