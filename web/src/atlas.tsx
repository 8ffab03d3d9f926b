// The head atlas: layers x heads on one canvas, under a grid of transparent cells that carry focus, names and marks (W3C APG grid: one tab
// stop, arrows inside). Hovering a word draws its row in every head at once.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { JSX } from 'preact';
import { AtlasCanvas, atlasLayout, Thumbnails, type AtlasLayout } from './atlas_draw';
import { atlasChoices, atlasValues, sortedHeads, type AtlasValues } from './atlas_values';
import { gradientOf, kViridis, weightPalette, type Theme } from './colour';
import type { Head } from './contract';
import { prepared, useHoverDrawing, useSize, useTheme } from './hooks';
import type { Store } from './store';

const kLabels = 28;
/** The narrowest cell under which a name such as L11H11 has room. */
const kCaptioned = 36;
/** Beyond this many heads only the selected one's row is in the document. */
const kMostCells = 400;
const thumbnails = new Thumbnails();

function paint(store: Store, canvas: AtlasCanvas, context: CanvasRenderingContext2D, values: AtlasValues | null): void {
  const { data, state } = store;
  canvas.begin();
  const { query, key } = store.hover.value;
  const active = store.active;
  for (const place of canvas.layout.places) {
    const [layer, head] = place.head;
    if (!data || !data.run.layers[layer] || head >= data.run.layers[layer].heads) continue;
    if (state.atlas !== 'row') {
      if (values) canvas.flat(place, values.values[layer]?.[head] ?? NaN, values.least, values.most, values.palette);
      continue;
    }
    const table = data.weights(layer, state.unit);
    const column = data.self ? active : key;
    if (!table) {
      if (active >= 0) canvas.twoStrips(place, data.rowSteps(state.unit, place.head, active, 0), data.rowSteps(state.unit, place.head, active, 1));
      continue;
    }
    if (active < 0 && column < 0) {
      const picture = thumbnails.get(data, state.unit, place.head, canvas.side);
      if (picture) canvas.table(place, picture);
      continue;
    }
    const [, rows, columns] = table.shape;
    const start = (head * rows + active) * columns;
    const to = active >= 0 && (data.self || query >= 0 || key < 0) ? (table.raw.subarray(start, start + columns) as Uint8Array) : null;
    canvas.strips(place, to, column >= 0 ? { table, head, key: column } : null);
  }
  canvas.put(context);
}

function useValues(store: Store, theme: Theme): AtlasValues | null {
  const { atlas, unit, pin, a, b } = store.state;
  return useMemo(() => atlasValues(store, theme), [store.version, atlas, unit, pin, a, b, theme]);
}

export function Atlas({ store }: { store: Store }): JSX.Element | null {
  const theme = useTheme();
  const frame = useRef<HTMLDivElement>(null);
  const element = useRef<HTMLCanvasElement>(null);
  const size = useSize(frame);
  const values = useValues(store, theme);
  const { data, state } = store;
  const counts = data?.run.layers.map((layer) => layer.heads) ?? [];
  const order = state.sorted && values ? sortedHeads(values.values) : null;
  const layout = useMemo(
    () => (counts.length && size.width ? atlasLayout(counts, order, size.width - kLabels, innerHeight * 0.46) : null),
    [counts.join(), order?.join(), size.width],
  );
  const canvas = useMemo(() => layout && new AtlasCanvas(layout, Math.min(devicePixelRatio || 1, 2), weightPalette(state)), [layout, state.lift]);
  const draw = (): void => {
    if (!canvas || !element.current) return;
    const shown = state.atlas === 'link' ? atlasValues(store, theme) : values;
    paint(store, canvas, prepared(element.current, canvas.layout.width, canvas.layout.height), shown);
  };
  useEffect(draw);
  useHoverDrawing(store, draw);
  useEffects(store);
  return (
    <section class="atlas" aria-label="Head atlas">
      <AtlasBar store={store} values={values} />
      <div class="atlas-frame" ref={frame}>
        {layout && (
          <div class="atlas-box" style={{ width: layout.width + kLabels, height: layout.height + 20 }}>
            <HeadLabels store={store} layout={layout} sorted={order !== null} />
            <canvas ref={element} class="atlas-canvas" aria-hidden="true" />
            <AtlasGrid store={store} layout={layout} values={values} sorted={order !== null} />
          </div>
        )}
      </div>
      <AtlasLegend store={store} values={values} theme={theme} />
    </section>
  );
}

/** The effects of taking heads out are asked for when they are to be seen, and given up when they are not any more. */
function useEffects(store: Store): void {
  const { atlas } = store.state;
  const { data } = store;
  useEffect(() => {
    if (atlas !== 'effect' || !data || data.effects || !data.hasEffects || !store.info?.model) return;
    const stop = new AbortController();
    data.loadEffects('zero', stop.signal).then(
      () => store.tell(),
      (problem) => stop.signal.aborted || store.report(problem),
    );
    return () => stop.abort();
  }, [atlas, data]);
}

function AtlasBar({ store, values }: { store: Store; values: AtlasValues | null }): JSX.Element {
  const { atlas, sorted } = store.state;
  return (
    <div class="bar">
      <h2>Heads</h2>
      <label class="grow">
        <span class="unseen">Colour heads by</span>
        <select value={atlas} onChange={(event) => store.update({ atlas: event.currentTarget.value })}>
          {atlasChoices(store).map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.name}
            </option>
          ))}
        </select>
      </label>
      <label class={values ? 'check' : 'check off'}>
        <input type="checkbox" checked={sorted} disabled={!values} onChange={() => store.update({ sorted: !sorted })} /> sorted
      </label>
    </div>
  );
}

function HeadLabels({ store, layout, sorted }: { store: Store; layout: AtlasLayout; sorted: boolean }): JSX.Element {
  const first = store.state.one ? 1 : 0;
  const step = layout.cell < 16 ? 4 : 1;
  const { layers } = store.data!.run;
  const grouped = !sorted && layers.find((layer) => layer.kv_heads < layer.heads);
  const group = grouped ? grouped.heads / grouped.kv_heads : 0;
  return (
    <div aria-hidden="true">
      {!sorted &&
        Array.from({ length: layout.columns }, (_, h) =>
          h % step ? null : (
            <span key={`h${h}`} class="tick" style={{ left: kLabels + h * layout.cell, top: 0, width: layout.cell * step - 2 }}>
              {h + first}
            </span>
          ),
        )}
      {grouped &&
        Array.from({ length: grouped.kv_heads }, (_, g) => (
          <span key={`g${g}`} class="bracket" style={{ left: kLabels + g * group * layout.cell, width: group * layout.cell - 3 }} title={`heads that share keys and values ${g + first}`} />
        ))}
      {Array.from({ length: layout.rows }, (_, row) =>
        row % step ? null : (
          <span key={`l${row}`} class="tick of-row" style={{ top: 20 + row * (layout.cell + layout.caption), height: layout.cell - 3 }} title={sorted ? '' : layers[row].name}>
            {sorted ? row * layout.columns + 1 : `L${row + first}`}
          </span>
        ),
      )}
    </div>
  );
}

function AtlasGrid({ store, layout, values, sorted }: { store: Store; layout: AtlasLayout; values: AtlasValues | null; sorted: boolean }): JSX.Element {
  const grid = useRef<HTMLDivElement>(null);
  const { layer, head } = store.state;
  const mine = layout.places.find((place) => place.head[0] === layer && place.head[1] === head) ?? layout.places[0];
  const rows = Array.from({ length: layout.rows }, (_, row) => row).filter((row) => layout.places.length <= kMostCells || row === mine.row);
  const go = (column: number, row: number): boolean => {
    const found = layout.places.find((place) => place.column === column && place.row === row);
    if (!found) return false;
    store.update({ layer: found.head[0], head: found.head[1] }, 'replace');
    requestAnimationFrame(() => grid.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus());
    return true;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const moves: Record<string, [number, number]> = {
      ArrowRight: [mine.column + 1, mine.row],
      ArrowLeft: [mine.column - 1, mine.row],
      ArrowDown: [mine.column, mine.row + 1],
      ArrowUp: [mine.column, mine.row - 1],
      Home: [0, mine.row],
      End: [layout.columns - 1, mine.row],
    };
    if (!moves[event.key] || event.altKey || event.metaKey) return;
    go(...moves[event.key]);
    event.preventDefault();
    event.stopPropagation();
  };
  const onClick = (event: MouseEvent): void => {
    const box = grid.current!.getBoundingClientRect();
    go(Math.floor((event.clientX - box.left) / layout.cell), Math.floor((event.clientY - box.top) / (layout.cell + layout.caption)));
  };
  return (
    <div
      class="atlas-grid"
      ref={grid}
      role="grid"
      aria-label="Heads: layers down, heads across; arrow keys move"
      aria-rowcount={layout.rows}
      aria-colcount={layout.columns}
      style={{ left: kLabels, width: layout.width, height: layout.height }}
      onKeyDown={onKeyDown}
      onClick={onClick}
    >
      {rows.map((row) => (
        <div role="row" key={row} aria-rowindex={row + 1}>
          {layout.places
            .filter((place) => place.row === row)
            .map((place) => (
              <Cell key={place.head.join()} store={store} layout={layout} place={place} chosen={place === mine} values={values} sorted={sorted} />
            ))}
        </div>
      ))}
    </div>
  );
}

interface CellProps {
  store: Store;
  layout: AtlasLayout;
  place: { head: Head; column: number; row: number };
  chosen: boolean;
  values: AtlasValues | null;
  sorted: boolean;
}

function Cell({ store, layout, place, chosen, values, sorted }: CellProps): JSX.Element {
  const [layer, head] = place.head;
  const changed = store.isRemoved(layer, head) ? 'removed' : store.isZeroed(layer, head) ? 'zeroed' : store.isMean(layer, head) ? 'mean' : '';
  const value = values?.values[layer]?.[head];
  const name = store.headName(place.head);
  const told = [name, changed && `(${changed})`, value !== undefined && Number.isFinite(value) && shortNumber(value)].filter(Boolean).join(' ');
  return (
    <span
      role="gridcell"
      class={`cell ${changed} ${chosen ? 'chosen' : ''}`}
      aria-colindex={place.column + 1}
      aria-selected={chosen}
      aria-label={told}
      title={told}
      tabIndex={chosen ? 0 : -1}
      style={{ left: place.column * layout.cell + 1, top: place.row * (layout.cell + layout.caption) + 1, width: layout.cell - 3, height: layout.cell - 3 }}
    >
      {sorted && layout.cell >= kCaptioned && <span class="caption">{name.replace(' ', '')}</span>}
    </span>
  );
}

export function shortNumber(value: number): string {
  return Math.abs(value) >= 10 ? value.toFixed(1) : Math.abs(value) >= 0.01 || value === 0 ? value.toFixed(2) : value.toExponential(1);
}

function AtlasLegend({ store, values, theme }: { store: Store; values: AtlasValues | null; theme: Theme }): JSX.Element {
  const signed = values?.palette === theme.signed;
  const waiting = store.state.atlas === 'effect' && !values;
  const text = waiting
    ? 'Running the model once without each head …'
    : values
      ? values.meaning
      : store.active >= 0
        ? store.data?.self
          ? 'upper half: to whom · lower half: from whom'
          : 'to whom the query attends'
        : store.data?.isLong(store.state.unit)
          ? 'pin a word to see its row in every head'
          : 'tables; on a word: its row above, its column below';
  return (
    <div class="legend">
      <span class="number">{shortNumber(values?.least ?? 0)}</span>
      <span class="ramp" style={{ background: gradientOf(signed ? theme.signed : values ? kViridis : weightPalette(store.state)) }} />
      <span class="number">{shortNumber(values?.most ?? 1)}</span>
      <span class="quiet" title={text}>
        {text}
      </span>
    </div>
  );
}
