// The selected head's table at any length: a picture that is zoomed, its tiles computed by the server as they come into view (the largest
// weight of what a cell covers when far, each pair when near). Positions are pieces.
import { useEffect, useMemo, useReducer, useRef } from 'preact/hooks';
import type { JSX } from 'preact';
import { scaleLinear } from 'd3-scale';
import { weightPalette, type Theme } from './colour';
import { leave, prepared, useHoverDrawing, useSize, useTheme } from './hooks';
import { matrixLayout, type MatrixLayout, type Zoom } from './matrix_scene';
import type { RunData } from './run_data';
import { drawHatch } from './scene';
import { kNowhere, type Hover, type Store } from './store';
import { boxOf, levelFor, tilesIn, Tiles, type TileId } from './tiles';
import { useZoom } from './zoom';

interface View {
  layout: MatrixLayout;
  zoom: Zoom;
  tiles: Tiles;
  theme: Theme;
}

/** Pieces in view. */
function boxInView({ layout, zoom, tiles }: View): { top: number; bottom: number; left: number; right: number } {
  const cell = layout.cell * zoom.k;
  return {
    top: Math.max(0, zoom.query),
    bottom: Math.min(tiles.rows, zoom.query + layout.height / cell),
    left: Math.max(0, zoom.key),
    right: Math.min(tiles.columns, zoom.key + layout.width / cell),
  };
}

/** Tiles that are wanted, coarse ones first: there is something to see at once. */
function wanted(view: View): TileId[] {
  const cell = view.layout.cell * view.zoom.k;
  const fine = levelFor(1 / cell);
  const whole = levelFor(Math.max(view.tiles.rows, view.tiles.columns) / 256);
  const box = boxInView(view);
  if (fine >= whole - 1) return tilesIn(fine, box);
  return [...tilesIn(whole, box), ...tilesIn(fine, box)];
}

function paintTiles(context: CanvasRenderingContext2D, view: View): void {
  const { layout, zoom, tiles, theme } = view;
  const cell = layout.cell * zoom.k;
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, layout.width, layout.height);
  context.clip();
  drawHatch(context, layout.left, layout.top, layout.width, layout.height, theme.line);
  context.imageSmoothingEnabled = false;
  const ids = wanted(view).sort((a, b) => b.z - a.z);
  for (const id of ids) {
    const image = tiles.get(id);
    if (!image) continue;
    const box = boxOf(id, tiles.rows, tiles.columns);
    const at = [layout.left + (box.left - zoom.key) * cell, layout.top + (box.top - zoom.query) * cell];
    const [w, h] = [(box.right - box.left) * cell, (box.bottom - box.top) * cell];
    context.clearRect(at[0], at[1], w, h);
    drawHatch(context, at[0], at[1], w, h, theme.line);
    context.drawImage(image, at[0], at[1], w, h);
  }
  context.restore();
  paintAxes(context, view);
}

function paintAxes(context: CanvasRenderingContext2D, view: View): void {
  const { layout, theme } = view;
  const box = boxInView(view);
  context.fillStyle = theme.quiet;
  context.font = `400 11px ${theme.font}`;
  const across = scaleLinear([box.left, box.right], [layout.left, layout.left + layout.width]);
  const down = scaleLinear([box.top, box.bottom], [layout.top, layout.top + layout.height]);
  context.textBaseline = 'alphabetic';
  context.textAlign = 'center';
  for (const tick of across.ticks(6)) {
    context.fillText(tick.toLocaleString('en'), across(tick), layout.top - 8);
    context.fillRect(across(tick), layout.top - 5, 1, 4);
  }
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const tick of down.ticks(6)) {
    context.fillText(tick.toLocaleString('en'), layout.left - 8, down(tick));
    context.fillRect(layout.left - 5, down(tick), 4, 1);
  }
}

function paintCross(context: CanvasRenderingContext2D, store: Store, view: View): void {
  const { layout, zoom, theme } = view;
  const { query, key } = store.hover.value;
  if (query < 0 || key < 0) return;
  const cell = layout.cell * zoom.k;
  context.strokeStyle = theme.accent;
  context.strokeRect(layout.left, layout.top + (query - zoom.query) * cell, layout.width, Math.max(1, cell));
  context.strokeRect(layout.left + (key - zoom.key) * cell, layout.top, Math.max(1, cell), layout.height);
}

/** The pair of pieces under the pointer. */
function pointed(event: MouseEvent, frame: HTMLElement, { layout, zoom, tiles }: View): Hover {
  const box = frame.getBoundingClientRect();
  const cell = layout.cell * zoom.k;
  const query = Math.floor(zoom.query + (event.clientY - box.top - layout.top) / cell);
  const key = Math.floor(zoom.key + (event.clientX - box.left - layout.left) / cell);
  return query >= 0 && key >= 0 && query < tiles.rows && key < tiles.columns ? { query, key } : kNowhere;
}

export function DetailMap({ store, data }: { store: Store; data: RunData }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const where = useRef<HTMLParagraphElement>(null);
  const [, again] = useReducer((n: number) => n + 1, 0);
  const theme = useTheme();
  const size = useSize(frame);
  const { layer, head } = store.state;
  const tiles = useMemo(
    () =>
      new Tiles(data, layer, head, weightPalette(store.state), (problem) => {
        if (problem) store.report(problem);
        again(0);
      }),
    [data, layer, head, store.state.lift],
  );
  const layout = useMemo(
    () => matrixLayout(tiles.rows, tiles.columns, 48, Math.max(size.width, 60), Math.max(size.height - 24, 60)),
    [tiles, size.width, size.height],
  );
  const zoom = useZoom(store, frame, layout, tiles.rows, tiles.columns);
  const view: View = { layout, zoom, tiles, theme };
  useEffect(() => {
    if (!size.width) return;
    const timer = setTimeout(() => tiles.want(wanted(view)), 120);
    return () => clearTimeout(timer);
  }, [tiles, layout, zoom]);
  useEffect(() => {
    if (base.current && size.width) paintTiles(prepared(base.current, size.width, size.height), view);
  });
  const drawOver = (): void => {
    if (over.current && size.width) paintCross(prepared(over.current, size.width, size.height), store, view);
    const { query, key } = store.hover.value;
    const pieces = data.run.queries.pieces;
    const keys = (data.run.keys ?? data.run.queries).pieces;
    const text = query < 0 || key < 0 ? '' : `${pieces[query]?.text ?? ''} (${query}) → ${keys[key]?.text ?? ''} (${key})`;
    if (where.current) where.current.textContent = tiles.waiting ? `${text || 'computing'} …` : text || '\u00a0';
  };
  useEffect(drawOver);
  useHoverDrawing(store, drawOver);
  const point = (event: MouseEvent): void => store.hover.set(store.state.unit === 'piece' ? pointed(event, frame.current!, view) : kNowhere);
  return (
    <div class="picture" ref={frame} tabIndex={0} role="img" onMouseMove={point} onMouseLeave={() => leave(store)}
      aria-label={`Map of ${store.headName([layer, head])}: ${tiles.rows} by ${tiles.columns} pieces; plus and minus zoom, then arrows move`}
    >
      <canvas ref={base} />
      <canvas ref={over} />
      <p class="where number" ref={where} dir="auto">
        {'\u00a0'}
      </p>
    </div>
  );
}
