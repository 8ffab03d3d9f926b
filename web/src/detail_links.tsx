// The links of the selected head. The picture of all links is drawn once; the active word's links are a second canvas over it, so that a
// hover draws one row. Long lists scroll: only the rows in view are drawn.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import type { Theme } from './colour';
import { linksOf, type HeadView } from './head_view';
import { leave, prepared, useHoverDrawing, useSize, useTheme, widthIn } from './hooks';
import { curveOf, kMostLinks, layoutOf, linksScene, strokeOf, type LinksPicture } from './links_scene';
import { drawScene } from './scene';
import { kNowhere, type Hover, type Store } from './store';

export function rowHeightFor(rows: number, height: number): number {
  return Math.max(18, Math.min(34, Math.floor(height / Math.max(rows, 1))));
}

/** The active word's row, or the column of a key, over the faint rest. */
function paintActive(store: Store, view: HeadView, picture: LinksPicture, context: CanvasRenderingContext2D): void {
  const layout = layoutOf(picture);
  const { matrix } = view;
  const { query, key } = store.hover.value;
  const cells: [number, number, number][] = [];
  if (query < 0 && key >= 0) for (let i = 0; i < matrix.rows; ++i) cells.push([i, key, matrix.values[i * matrix.columns + key]]);
  else for (let j = 0; j < matrix.columns; ++j) cells.push([store.active, j, matrix.values[store.active * matrix.columns + j]]);
  for (const link of cells) {
    if (!(Math.abs(link[2]) > 0.004 * view.most)) continue;
    const { stroke, width, opacity } = strokeOf(picture, link[2] / view.most);
    context.globalAlpha = opacity;
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.lineCap = 'round';
    context.stroke(new Path2D(curveOf(layout, link)));
  }
  context.globalAlpha = 1;
  paintNumbers(view, picture, context, cells);
}

/** The weights of the active word's links beside the words they lead to. */
function paintNumbers(view: HeadView, picture: LinksPicture, context: CanvasRenderingContext2D, cells: [number, number, number][]): void {
  const layout = layoutOf(picture);
  const byKey = cells.length > 1 && cells[0][1] === cells[1][1];
  context.font = `500 ${Math.min(12, layout.size)}px ${picture.theme.font}`;
  context.fillStyle = picture.theme.accent;
  context.textBaseline = 'middle';
  context.textAlign = byKey ? 'left' : 'right';
  for (const [from, to, value] of cells) {
    if (!(Math.abs(value) >= 0.02 * view.most)) continue;
    const x = byKey ? 4 : picture.width - 6;
    context.fillText(value.toFixed(2).replace('-', '−'), x, layout.y(byKey ? from : to));
  }
}

function pictureOf(view: HeadView, rows: number, size: { width: number; height: number }, theme: Theme): LinksPicture {
  const links = linksOf(view, kMostLinks).map(([from, to, value]): [number, number, number] => [from, to, value / view.most]);
  const rowHeight = rowHeightFor(rows, size.height);
  return { queries: view.queries, keys: view.keys, links, signed: view.signed, width: size.width, rowHeight, theme, measure: widthIn(theme.font) };
}

/** What a pointer over the picture is on: a query's word, a key's, or nothing. */
function pointed(event: MouseEvent, frame: HTMLElement, top: number, view: HeadView, picture: LinksPicture): Hover {
  const box = frame.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top + top) / picture.rowHeight);
  const x = event.clientX - box.left;
  const layout = layoutOf(picture);
  if (x <= layout.left && row < view.matrix.rows) return { query: row, key: -1 };
  if (x >= layout.right && row < view.matrix.columns) return { query: -1, key: row };
  return kNowhere;
}

export function DetailLinks({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const names = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const size = useSize(frame);
  const [top, setTop] = useState(0);
  const rows = Math.max(view.matrix.rows, view.matrix.columns);
  const picture = useMemo(() => pictureOf(view, rows, size, theme), [view, size.width, size.height, theme]);
  const drawOver = (): void => {
    const { query, key } = store.hover.value;
    const canvas = over.current;
    if (!canvas || !base.current || !size.width) return;
    const context = prepared(canvas, size.width, size.height);
    const active = store.active >= 0 ? store.active < view.matrix.rows : query < 0 && key >= 0 && key < view.matrix.columns;
    base.current.style.opacity = active ? '0.3' : '1';
    if (!active) return;
    context.translate(0, -top);
    paintActive(store, view, picture, context);
    highlight(context, picture, store);
  };
  useEffect(() => {
    if (!base.current || !names.current || !size.width) return;
    const first = Math.max(0, Math.floor(top / picture.rowHeight) - 1);
    const scene = linksScene(picture, [first, Math.min(rows, first + Math.ceil(size.height / picture.rowHeight) + 3)]);
    for (const canvas of [base.current, names.current]) {
      const context = prepared(canvas, size.width, size.height);
      context.translate(0, -top);
      drawScene(context, { ...scene, shapes: scene.shapes.filter((shape) => (shape.kind === 'path') === (canvas === base.current)) }, theme.font);
    }
  }, [picture, top, size.width, size.height]);
  useEffect(drawOver);
  useHoverDrawing(store, drawOver);
  const point = (event: MouseEvent): void => store.hover.set(pointed(event, frame.current!, top, view, picture));
  const label = `Links of ${store.headName([store.state.layer, store.state.head])}: the strongest ${picture.links.length}. The view “table” gives them as text.`;
  return (
    <div class="picture scroller" ref={frame} tabIndex={0} role="img" aria-label={label} onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onMouseMove={point} onMouseLeave={() => leave(store)}
      onClick={(event) => {
        point(event);
        const { query } = store.hover.value;
        if (query >= 0) store.update({ pin: query === store.state.pin ? -1 : query });
      }}
    >
      <div style={{ height: Math.max(rows * picture.rowHeight, 1) }}>
        <div class="stuck">
          <canvas ref={base} />
          <canvas ref={names} />
          <canvas ref={over} />
        </div>
      </div>
    </div>
  );
}

/** The active word, again, in full ink over the faint picture. */
function highlight(context: CanvasRenderingContext2D, picture: LinksPicture, store: Store): void {
  const { query, key } = store.hover.value;
  const asKey = query < 0 && key >= 0;
  const row = asKey ? key : store.active;
  const side = asKey ? picture.keys : picture.queries;
  const labels = linksScene({ ...picture, links: [], theme: { ...picture.theme, ink: picture.theme.accent, quiet: picture.theme.accent } }, [row, row + 1]);
  const index = asKey && picture.queries.length > row ? 1 : 0;
  if (row < side.length && labels.shapes[index]) drawScene(context, { ...labels, shapes: [labels.shapes[index]] }, picture.theme.font);
}
