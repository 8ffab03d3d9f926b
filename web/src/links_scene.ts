// The links of one head: queries on the left, keys on the right, a curve for each of the strongest weights (at most 500). Pure geometry;
// detail_links.tsx shows it, save.ts writes it.
import { linkHorizontal } from 'd3-shape';
import type { UnitLabel } from './contract';
import type { Theme } from './colour';
import type { Link } from './matrix_math';
import { fitted, type Scene, type Shape } from './scene';

export const kMostLinks = 500;

export interface LinksPicture {
  queries: UnitLabel[];
  keys: UnitLabel[];
  links: Link[];
  signed: boolean;
  width: number;
  rowHeight: number;
  theme: Theme;
  measure: (text: string, size: number) => number;
}

export interface LinksLayout {
  left: number;
  right: number;
  size: number;
  height: number;
  y: (row: number) => number;
}

/** Where words and curves go. */
export function layoutOf(picture: LinksPicture): LinksLayout {
  const { width, rowHeight, queries, keys } = picture;
  const column = Math.min(width * 0.32, 220);
  return {
    left: column,
    right: width - column,
    size: Math.max(10, Math.min(15, Math.round(rowHeight * 0.56))),
    height: Math.max(queries.length, keys.length) * rowHeight,
    y: (row) => (row + 0.5) * rowHeight,
  };
}

const curve = linkHorizontal<unknown, [number, number]>();

export function curveOf(layout: LinksLayout, [from, to]: Link): string {
  return curve({ source: [layout.left + 6, layout.y(from)], target: [layout.right - 6, layout.y(to)] }) ?? '';
}

/** The colour, width and opacity of a link. */
export function strokeOf(picture: LinksPicture, value: number): { stroke: string; width: number; opacity: number } {
  const strength = Math.min(1, Math.abs(value));
  const [down, up] = [picture.theme.signed.css[40], picture.theme.signed.css[215]];
  const stroke = !picture.signed ? picture.theme.accent : value < 0 ? down : up;
  return { stroke, width: 0.75 + 7 * strength, opacity: 0.15 + 0.75 * Math.sqrt(strength) };
}

/** Words of rows first to last, and their links; `rows` limits what is made to what is seen. */
export function linksScene(picture: LinksPicture, rows?: [number, number]): Scene {
  const layout = layoutOf(picture);
  const [first, last] = rows ?? [0, Math.max(picture.queries.length, picture.keys.length)];
  const shapes: Shape[] = picture.links
    .filter(([from, to]) => Math.max(from, to) >= first && Math.min(from, to) < last)
    .map((link) => ({ kind: 'path', d: curveOf(layout, link), ...strokeOf(picture, link[2]) }));
  for (let row = first; row < last; ++row) {
    if (row < picture.queries.length) shapes.push(label(picture, layout, row, 'query'));
    if (row < picture.keys.length) shapes.push(label(picture, layout, row, 'key'));
  }
  return { width: picture.width, height: layout.height, shapes };
}

function label(picture: LinksPicture, layout: LinksLayout, row: number, side: 'query' | 'key'): Shape {
  const unit = (side === 'query' ? picture.queries : picture.keys)[row];
  const room = side === 'query' ? layout.left - 12 : picture.width - layout.right - 44;  // the active word's numbers stand right of the keys
  return {
    kind: 'text',
    x: side === 'query' ? layout.left - 4 : layout.right + 4,
    y: layout.y(row),
    text: fitted(unit.text, room, (text) => picture.measure(text, layout.size)),
    full: unit.text,
    size: layout.size,
    fill: unit.special ? picture.theme.quiet : picture.theme.ink,
    anchor: side === 'query' ? 'end' : 'start',
  };
}
