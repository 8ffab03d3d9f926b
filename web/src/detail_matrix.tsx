// The selected head's table as cells: zoomed with the wheel, by dragging, by pinching, or with + - 0; a crosshair follows the pointer on a
// canvas of its own. The cells are one small image, stretched.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { JSX } from 'preact';
import { weightPalette } from './colour';
import type { HeadView } from './head_view';
import { leave, prepared, useHoverDrawing, useSize, useTheme, widthIn } from './hooks';
import { labelRoom, matrixLayout, matrixPixels, type MatrixLayout, type MatrixPicture, type Zoom } from './matrix_scene';
import { directionOf, drawHatch, fitted } from './scene';
import type { Store } from './store';
import { useZoom } from './zoom';

interface Drawing {
  picture: MatrixPicture;
  layout: MatrixLayout;
  image: HTMLCanvasElement;
  zoom: Zoom;
}

function imageOf(picture: MatrixPicture): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = picture.matrix.columns;
  canvas.height = picture.matrix.rows;
  canvas.getContext('2d')!.putImageData(matrixPixels(picture), 0, 0);
  return canvas;
}

/** Cells, hatching where nobody may look, and labels where they can be read. */
function paintCells(context: CanvasRenderingContext2D, { picture, layout, image, zoom }: Drawing): void {
  const { matrix, theme } = picture;
  const cell = layout.cell * zoom.k;
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, layout.width, layout.height);
  context.clip();
  drawHatch(context, layout.left, layout.top, layout.width, layout.height, theme.line);
  context.imageSmoothingEnabled = cell < 1;
  context.drawImage(image, layout.left - zoom.key * cell, layout.top - zoom.query * cell, matrix.columns * cell, matrix.rows * cell);
  if (cell >= 12) paintGaps(context, layout, zoom, cell, theme.ground);
  context.restore();
  if (cell >= 9) paintLabels(context, picture, layout, zoom, cell);
}

/** Hairlines of the ground between cells. */
function paintGaps(context: CanvasRenderingContext2D, layout: MatrixLayout, zoom: Zoom, cell: number, ground: string): void {
  context.fillStyle = ground;
  for (let j = Math.ceil(zoom.key); (j - zoom.key) * cell <= layout.width; ++j) {
    context.fillRect(Math.round(layout.left + (j - zoom.key) * cell) - 0.5, layout.top, 1, layout.height);
  }
  for (let i = Math.ceil(zoom.query); (i - zoom.query) * cell <= layout.height; ++i) {
    context.fillRect(layout.left, Math.round(layout.top + (i - zoom.query) * cell) - 0.5, layout.width, 1);
  }
}

function paintLabels(context: CanvasRenderingContext2D, picture: MatrixPicture, layout: MatrixLayout, zoom: Zoom, cell: number): void {
  const size = Math.max(9, Math.min(13, Math.floor(cell * 0.8)));
  context.font = `400 ${size}px ${picture.theme.font}`;
  context.textBaseline = 'middle';
  const fit = (text: string, room: number): string => fitted(text, room - 10, (part) => context.measureText(part).width);
  const put = (text: string, special: boolean): void => {
    context.fillStyle = special ? picture.theme.quiet : picture.theme.ink;
    context.direction = directionOf(text);
    context.fillText(text, 0, 0);
  };
  const visible = (first: number, length: number, of: number): number[] =>
    Array.from({ length: of }, (_, i) => i).filter((i) => i + 0.5 >= first && (i + 0.5 - first) * cell <= length);
  for (const i of visible(zoom.query, layout.height, picture.queries.length)) {
    context.save();
    context.translate(layout.left - 6, layout.top + (i + 0.5 - zoom.query) * cell);
    context.textAlign = 'right';
    put(fit(picture.queries[i].text, layout.left), picture.queries[i].special);
    context.restore();
  }
  for (const j of visible(zoom.key, layout.width, picture.keys.length)) {
    context.save();
    context.translate(layout.left + (j + 0.5 - zoom.key) * cell, layout.top - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = 'left';
    put(fit(picture.keys[j].text, layout.top), picture.keys[j].special);
    context.restore();
  }
}

/** The crosshair, and what each row gave to sinks, right of the cells. */
function paintOver(context: CanvasRenderingContext2D, store: Store, view: HeadView, drawing: Drawing): void {
  const { layout, zoom, picture } = drawing;
  const cell = layout.cell * zoom.k;
  const { key } = store.hover.value;
  if (view.removed) paintRemoved(context, view.removed, drawing);
  context.strokeStyle = picture.theme.accent;
  context.lineWidth = 1.5;
  context.beginPath();
  context.rect(layout.left - 1, layout.top - 1, layout.width + 2, layout.height + 2);
  context.clip();
  const row = layout.top + (store.active - zoom.query) * cell;
  const column = layout.left + (key - zoom.key) * cell;
  if (store.active >= 0) context.strokeRect(layout.left, row, layout.width, Math.max(cell, 2));
  if (key >= 0) context.strokeRect(column, layout.top, Math.max(cell, 2), layout.height);
}

function paintRemoved(context: CanvasRenderingContext2D, removed: Float32Array, { layout, zoom, picture }: Drawing): void {
  const cell = layout.cell * zoom.k;
  context.fillStyle = picture.theme.quiet;
  removed.forEach((share, i) => {
    const y = layout.top + (i - zoom.query) * cell;
    if (y < layout.top - cell || y > layout.top + layout.height - 1) return;
    context.fillRect(layout.left + layout.width + 4, y + 1, 20 * share, Math.max(1, cell - 2));
  });
}

export function DetailMatrix({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const size = useSize(frame);
  const measure = useMemo(() => widthIn(theme.font), [theme]);
  const picture: MatrixPicture = useMemo(() => ({ ...view, theme, measure, weights: weightPalette(store.state) }), [view, theme, store.state.lift]);
  const image = useMemo(() => imageOf(picture), [picture]);
  const layout = useMemo(() => {
    const room = labelRoom([...view.queries, ...view.keys], (text) => measure(text, 13));
    return matrixLayout(view.matrix.rows, view.matrix.columns, room, Math.max(size.width, 60), Math.max(size.height, 60));
  }, [view, size.width, size.height, measure]);
  const zoom = useZoom(store, frame, layout, view.matrix.rows, view.matrix.columns);
  const drawing = { picture, layout, image, zoom };
  const drawOver = (): void => {
    if (over.current && size.width) paintOver(prepared(over.current, size.width, size.height), store, view, drawing);
  };
  useEffect(() => {
    if (base.current && size.width) paintCells(prepared(base.current, size.width, size.height), drawing);
  }, [picture, layout, zoom, size.width, size.height]);
  useEffect(drawOver);
  useHoverDrawing(store, drawOver);
  const point = (event: MouseEvent): void => {
    const box = frame.current!.getBoundingClientRect();
    const x = event.clientX - box.left - layout.left;
    const y = event.clientY - box.top - layout.top;
    const cell = layout.cell * zoom.k;
    const query = Math.floor(zoom.query + y / cell);
    const key = Math.floor(zoom.key + x / cell);
    const inside = x < layout.width && y < layout.height && query < view.matrix.rows && key < view.matrix.columns;
    if (!inside || (x < 0 && y < 0)) leave(store);
    else store.hover.set({ query: y < 0 ? -1 : query, key: x < 0 ? -1 : key });
  };
  const name = store.headName([store.state.layer, store.state.head]);
  return (
    <div class="picture" ref={frame} tabIndex={0} role="img" onMouseMove={point} onMouseLeave={() => leave(store)}
      aria-label={`Table of ${name}: ${view.matrix.rows} rows that attend, ${view.matrix.columns} columns attended to; plus and minus zoom, then arrows move. The view “table” gives the numbers.`}
    >
      <canvas ref={base} />
      <canvas ref={over} />
    </div>
  );
}
