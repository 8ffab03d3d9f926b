// Pictures and numbers to keep: SVG (vector), PNG, CSV and JSON of the selected head, made here; the self-contained HTML file is the
// server's. Text in them is data, never markup.
import { kPaper, weightPalette } from './colour';
import { linksOf, type HeadView } from './head_view';
import { widthIn } from './hooks';
import { kMostLinks, linksScene } from './links_scene';
import { matrixScene } from './matrix_scene';
import { ApiError } from './source';
import { drawScene, writeSvg, type Scene } from './scene';
import type { Store } from './store';

export interface Named {
  store: Store;
  view: HeadView;
}

/** "the text, L5 H11, weights": what a picture says it is. */
export function titleOf({ store, view }: Named): string {
  const { layer, head, kind } = view.of;
  const what = view.signed ? 'difference of weights' : { raw: 'attention weights', sinkless: 'weights without sinks', norm: 'norms' }[kind];
  const model = store.info?.model?.name ?? store.info?.tensors?.file ?? '';
  return `${store.headName([layer, head])} of ${model}: ${what}`;
}

/** The picture in view as shapes, on paper's colours. */
export function paperScene({ store, view }: Named): Scene {
  const measure = widthIn(kPaper.font);
  const { state } = store;
  const picture =
    state.view === 'matrix'
      ? matrixScene({ ...view, theme: kPaper, measure, weights: weightPalette(state) })
      : linksScene({
          ...view,
          links: linksOf(view, kMostLinks).map(([from, to, value]) => [from, to, value / view.most]),
          width: 560,
          rowHeight: 26,
          theme: kPaper,
          measure,
        });
  return framed(picture, titleOf({ store, view }));
}

/** A margin, and the title under the picture. */
function framed(scene: Scene, title: string): Scene {
  const margin = 24;
  const shapes = scene.shapes.map((shape) =>
    shape.kind === 'path' ? { ...shape, d: moved(shape.d, margin) } : { ...shape, x: shape.x + margin, y: shape.y + margin },
  );
  const height = scene.height + 2 * margin + 24;
  shapes.push({ kind: 'text', x: margin, y: height - 24, text: title, size: 12, fill: kPaper.quiet });
  return { width: Math.max(scene.width, 360) + 2 * margin, height, shapes };
}

/** A path of absolute coordinates, moved right and down. */
function moved(d: string, by: number): string {
  return d.replace(/-?\d+(\.\d+)?/g, (number) => String(Math.round((Number(number) + by) * 100) / 100));
}

const quoted = (text: string): string => `"${text.replace(/"/g, '""')}"`;

/** A number with the digits that half precision has; a difference has those after the point. */
const figure = (value: number, signed: boolean): number => Number(signed ? value.toFixed(4) : value.toPrecision(4));

/** One line per cell that is not hidden: from_index,from,to_index,to,weight. */
export function csvOf(view: Pick<HeadView, 'matrix' | 'queries' | 'keys' | 'signed'>): string {
  const { columns, values } = view.matrix;
  const lines = ['from_index,from,to_index,to,weight'];
  values.forEach((value, at) => {
    const [i, j] = [Math.floor(at / columns), at % columns];
    if (!Number.isNaN(value)) lines.push([i, quoted(view.queries[i].text), j, quoted(view.keys[j].text), figure(value, view.signed)].join(','));
  });
  return `${lines.join('\r\n')}\r\n`;
}

/** The head with its words and its whole table; hidden cells are null. */
export function jsonOf({ store, view }: Named): string {
  const { matrix } = view;
  const { text, changed, layer, head, unit, kind, against, second } = view.of;
  const rows = Array.from({ length: matrix.rows }, (_, i) =>
    Array.from(matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns), (value) => (Number.isNaN(value) ? null : figure(value, view.signed))),
  );
  const about = { text, layer, head, unit, kind, difference: view.signed, against: against || null, second, changed };
  const words = { queries: view.queries.map((one) => one.text), keys: view.keys.map((one) => one.text) };
  return `${JSON.stringify({ model: store.info?.model?.name ?? null, ...about, ...words, weights: rows })}\n`;
}

export async function pngOf(scene: Scene): Promise<Blob> {
  const canvas = document.createElement('canvas');
  canvas.width = scene.width * 2;
  canvas.height = scene.height * 2;
  const context = canvas.getContext('2d')!;
  context.scale(2, 2);
  context.fillStyle = kPaper.ground;
  context.fillRect(0, 0, scene.width, scene.height);
  drawScene(context, scene, kPaper.font);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the picture is too large'))), 'image/png'));
}

function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export type Form = 'svg' | 'png' | 'csv' | 'json';

export async function save(named: Named, form: Form): Promise<void> {
  const { layer, head } = named.view.of;
  const name = `mha-${named.store.headName([layer, head]).replace(' ', '')}.${form}`;  // called as on the page: the numbers inside count from 0
  if (named.view.matrix.coarse && (form === 'csv' || form === 'json')) {
    throw new ApiError(0, 'This file holds the weights in steps of 1/255 only: too coarse to save as numbers.', 'Run `mha serve` and save them there.');
  }
  const plain = (text: string, type: string): Blob => new Blob([text], { type });
  if (form === 'svg') download(plain(writeSvg(paperScene(named), titleOf(named), kPaper.ground, kPaper.font), 'image/svg+xml'), name);
  else if (form === 'png') download(await pngOf(paperScene(named)), name);
  else if (form === 'csv') download(plain(csvOf(named.view), 'text/csv'), name);
  else download(plain(jsonOf(named), 'application/json'), name);
}
