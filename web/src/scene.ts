// A picture as a list of shapes, drawn on a canvas or written as SVG: the screen and the files that are kept show the same thing. Text is
// only ever drawn or escaped, never markup.

export type Shape =
  | { kind: 'rect'; x: number; y: number; w: number; h: number; fill: string; stroke?: string; opacity?: number }
  | { kind: 'path'; d: string; stroke: string; width: number; opacity?: number }
  | { kind: 'text'; x: number; y: number; text: string; size: number; fill: string; anchor?: Anchor; turn?: number; weight?: number; full?: string }
  | { kind: 'hatch'; x: number; y: number; w: number; h: number; stroke: string };

type Anchor = 'start' | 'middle' | 'end';

export interface Scene {
  width: number;
  height: number;
  shapes: Shape[];
}

const kRightToLeft = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
const kStrong = /\p{L}/u;

/** The direction of a word, as dir=auto finds it: that of its first letter. */
export function directionOf(text: string): 'ltr' | 'rtl' {
  const first = kStrong.exec(text);
  return first && kRightToLeft.test(first[0]) ? 'rtl' : 'ltr';
}

/** What a reader sees as single letters: marks stay with their letter, emoji with their modifiers. */
export function letters(text: string): string[] {
  if (typeof Intl !== 'undefined' && 'Segmenter' in Intl) {
    return Array.from(new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(text), (part) => part.segment);
  }
  return Array.from(text);
}

/** The text, or as much of its start as fits `width`, then an ellipsis. Control characters are shown as visible ones. */
export function fitted(text: string, width: number, measure: (text: string) => number): string {
  const shown = visible(text);
  if (measure(shown) <= width) return shown;
  const parts = letters(shown);
  let low = 0;
  let high = parts.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${parts.slice(0, middle).join('')}…`) <= width) low = middle;
    else high = middle - 1;
  }
  return `${parts.slice(0, low).join('')}…`;
}

/** Control characters as their pictures, and what cannot be seen at all by its number, so that no unit looks empty. */
export function visible(text: string): string {
  const shown = text.replace(/[\u0000-\u001f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)));
  if (!/^[\s\p{Cf}\p{Variation_Selector}]*$/u.test(shown)) return shown;
  return Array.from(shown, (letter) => (letter === ' ' ? '␠' : `U+${letter.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}`)).join(' ') || '∅';
}

/** Letters that are left out of SVG (XML does not have them) and the five that markup would read. */
export function escapeXml(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd').replace(/[&<>"']/g, (letter) => names[letter]);
}

export function drawScene(context: CanvasRenderingContext2D, scene: Scene, font: string): void {
  for (const shape of scene.shapes) drawShape(context, shape, font);
}

function drawShape(context: CanvasRenderingContext2D, shape: Shape, font: string): void {
  context.globalAlpha = 'opacity' in shape ? (shape.opacity ?? 1) : 1;
  if (shape.kind === 'rect') {
    context.fillStyle = shape.fill;
    if (shape.fill !== 'none') context.fillRect(shape.x, shape.y, shape.w, shape.h);
    if (shape.stroke) {
      context.strokeStyle = shape.stroke;
      context.lineWidth = 1;
      context.strokeRect(shape.x + 0.5, shape.y + 0.5, shape.w - 1, shape.h - 1);
    }
  } else if (shape.kind === 'path') {
    context.strokeStyle = shape.stroke;
    context.lineWidth = shape.width;
    context.lineCap = 'round';
    context.stroke(new Path2D(shape.d));
  } else if (shape.kind === 'hatch') {
    drawHatch(context, shape.x, shape.y, shape.w, shape.h, shape.stroke);
  } else {
    drawText(context, shape, font);
  }
  context.globalAlpha = 1;
}

function drawText(context: CanvasRenderingContext2D, shape: Shape & { kind: 'text' }, font: string): void {
  context.save();
  context.font = `${shape.weight ?? 400} ${shape.size}px ${font}`;
  context.fillStyle = shape.fill;
  context.textBaseline = 'middle';
  // 'left' and 'right' do not turn with the direction, 'start' and 'end' would.
  context.textAlign = { start: 'left', middle: 'center', end: 'right' }[shape.anchor ?? 'start'] as CanvasTextAlign;
  context.direction = directionOf(shape.text);
  context.translate(shape.x, shape.y);
  if (shape.turn) context.rotate((shape.turn * Math.PI) / 180);
  context.fillText(shape.text, 0, 0);
  context.restore();
}

/** Slanted lines over a rectangle: what nobody may see. */
export function drawHatch(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, stroke: string): void {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.beginPath();
  for (let d = Math.ceil((x - h) / 6) * 6; d < x + w; d += 6) {
    context.moveTo(d, y + h);
    context.lineTo(d + h, y);
  }
  context.strokeStyle = stroke;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

/** The scene as an SVG file on `ground`; `title` says what it shows, to eyes and ears. */
export function writeSvg(scene: Scene, title: string, ground: string, font: string): string {
  const [w, h] = [scene.width, scene.height].map((n) => round(n));
  const hatch = scene.shapes.find((shape) => shape.kind === 'hatch') as (Shape & { kind: 'hatch' }) | undefined;
  const defs = hatch
    ? `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
      `<path d="M0 0V6" stroke="${escapeXml(hatch.stroke)}" stroke-width="2"/></pattern></defs>`
    : '';
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" role="img" aria-labelledby="t" ` +
    `font-family="${escapeXml(font)}"><title id="t">${escapeXml(title)}</title>${defs}` +
    `<rect width="${w}" height="${h}" fill="${escapeXml(ground)}"/>\n${scene.shapes.map(writeShape).join('\n')}\n</svg>\n`
  );
}

const round = (n: number): number => Math.round(n * 100) / 100;

function writeShape(shape: Shape): string {
  const opacity = 'opacity' in shape && shape.opacity !== undefined ? ` opacity="${round(shape.opacity)}"` : '';
  if (shape.kind === 'rect' || shape.kind === 'hatch') {
    const box = `x="${round(shape.x)}" y="${round(shape.y)}" width="${round(shape.w)}" height="${round(shape.h)}"`;
    if (shape.kind === 'hatch') return `<rect ${box} fill="url(#hatch)"/>`;
    return `<rect ${box} fill="${escapeXml(shape.fill)}"${shape.stroke ? ` stroke="${escapeXml(shape.stroke)}"` : ''}${opacity}/>`;
  }
  if (shape.kind === 'path') {
    const stroke = `stroke="${escapeXml(shape.stroke)}" stroke-width="${round(shape.width)}"`;
    return `<path d="${escapeXml(shape.d)}" fill="none" ${stroke} stroke-linecap="round"${opacity}/>`;
  }
  return writeText(shape);
}

function writeText(shape: Shape & { kind: 'text' }): string {
  const turn = shape.turn ? ` transform="rotate(${shape.turn} ${round(shape.x)} ${round(shape.y)})"` : '';
  const rtl = directionOf(shape.text) === 'rtl';
  // In a right-to-left run SVG's start is the right edge.
  const anchor = shape.anchor === 'middle' ? 'middle' : (shape.anchor === 'end') !== rtl ? 'end' : 'start';
  const full = shape.full && shape.full !== shape.text ? `<title>${escapeXml(shape.full)}</title>` : '';
  const weight = shape.weight && shape.weight !== 400 ? ` font-weight="${shape.weight}"` : '';
  return (
    `<text x="${round(shape.x)}" y="${round(shape.y)}" font-size="${shape.size}" fill="${escapeXml(shape.fill)}" text-anchor="${anchor}" ` +
    `dominant-baseline="central"${rtl ? ' direction="rtl"' : ''}${weight}${turn}>${full}${escapeXml(shape.text)}</text>`
  );
}
