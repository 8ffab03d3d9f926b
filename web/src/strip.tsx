// The sentence, unit by unit: hovering shows a unit's row everywhere, a click or Enter pins it. The shading behind the units is one canvas,
// so that a hover costs no layout. A long text is shown a stretch at a time.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { JSX, RefObject } from 'preact';
import type { UnitLabel } from './contract';
import { leave, prepared, useHoverDrawing, useSize, useTheme } from './hooks';
import { visible } from './scene';
import type { Store } from './store';

const kStretch = 600;

interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** Alpha of the shading for a weight: the square root, so that 0.05 is still seen; the bar beside says so. */
export const alphaOf = (weight: number): number => 0.6 * Math.sqrt(Math.max(0, Math.min(1, weight)));

function boxesOf(list: HTMLElement): Box[] {
  return Array.from(list.children, (child) => {
    const element = child as HTMLElement;
    return { x: element.offsetLeft, y: element.offsetTop, w: element.offsetWidth, h: element.offsetHeight };
  });
}

/** The unit under the pointer, outlined here and not by CSS: that would paint all words again. */
function outline(place: Place, context: CanvasRenderingContext2D): void {
  const { store, boxes, first, accent } = place;
  const { query, key } = store.hover.value;
  const box = boxes[(place.side === 'query' || (store.data!.self && query >= 0) ? query : key) - first];
  if (!box) return;
  context.strokeStyle = accent;
  context.lineWidth = 2;
  context.strokeRect(box.x + 1, box.y + 1, box.w - 2, box.h - 2);
}

/** What a strip shows, and where. */
interface Place {
  store: Store;
  side: 'query' | 'key';
  boxes: Box[];
  first: number;
  accent: string;
}

/** Paints the selected head's row of the active unit behind the units: behind the keys, where queries and keys are two texts. */
function paint(place: Place, canvas: HTMLCanvasElement, list: HTMLElement): void {
  const { store, side, boxes, first, accent } = place;
  const context = prepared(canvas, list.offsetWidth, list.offsetHeight);
  outline(place, context);
  const { layer, head, unit } = store.state;
  const data = store.data!;
  const { query, key } = store.hover.value;
  const { self } = data;
  const active = store.active;
  const byColumn = !self && side === 'query' && query < 0 && key >= 0;
  if (!byColumn && (active < 0 || (!self && side === 'query'))) return;
  context.fillStyle = accent;
  boxes.forEach((box, i) => {
    const weight = byColumn ? data.weightAt(unit, [layer, head], first + i, key) : data.weightAt(unit, [layer, head], active, first + i);
    context.globalAlpha = alphaOf(weight || 0);
    context.fillRect(box.x, box.y, box.w, box.h);
  });
}

const unitAt = (event: Event): number => {
  const found = (event.target as HTMLElement).closest<HTMLElement>('[data-unit]');
  return found ? Number(found.dataset.unit) : -1;
};

interface StripActions {
  store: Store;
  side: 'query' | 'key';
  list: RefObject<HTMLDivElement>;
  /** Which of the shown units has the tab stop. */
  rover: number;
  setRover: (at: number) => void;
  first: number;
}

/** What pointing, choosing and keys do. */
function useStripActions({ store, side, list, rover, setRover, first }: StripActions) {
  const preview = (i: number): void => {
    if (i < 0) return leave(store);
    store.hover.set(side === 'query' ? { query: i, key: -1 } : { query: -1, key: i });
  };
  const togglePin = (i: number): void => {
    if (i >= 0 && side === 'query') void store.update({ pin: i === store.state.pin ? -1 : i });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const last = (list.current?.children.length ?? 0) - 1;
    const to = { ArrowRight: rover + 1, ArrowLeft: rover - 1, Home: 0, End: last }[event.key];
    if (event.key === 'Enter' || event.key === ' ') togglePin(first + rover);
    else if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    else {
      const next = Math.max(0, Math.min(last, to));
      setRover(next);
      (list.current?.children[next] as HTMLElement | undefined)?.focus();
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return { preview, togglePin, onKeyDown };
}

export function Strip({ store, side }: { store: Store; side: 'query' | 'key' }): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const boxes = useRef<Box[]>([]);
  const theme = useTheme();
  const frame = useRef<HTMLDivElement>(null);
  const size = useSize(frame);
  const [stretch, setStretch] = useState(0);
  const [rover, setRover] = useState(0);
  const { unit, pin } = store.state;
  const units = store.data ? (side === 'query' ? store.data.queries(unit) : store.data.keys(unit)) : [];
  const first = Math.min(stretch * kStretch, Math.max(0, Math.floor((units.length - 1) / kStretch) * kStretch));
  const shown = units.slice(first, first + kStretch);
  const draw = (): void => {
    if (canvas.current && list.current) paint({ store, side, boxes: boxes.current, first, accent: theme.accent }, canvas.current, list.current);
  };
  useLayoutEffect(() => {
    if (list.current) boxes.current = boxesOf(list.current);
  }, [units, first, size.width]);
  useLayoutEffect(draw);
  useHoverDrawing(store, draw);

  const { preview, togglePin, onKeyDown } = useStripActions({ store, side, list, rover: Math.min(rover, shown.length - 1), setRover, first });
  if (!store.data) return null;
  const label = side === 'key' ? 'Keys' : store.data.self ? 'Sentence' : 'Queries';
  return (
    <section class="strip" ref={frame} aria-label={label}>
      {units.length > kStretch && <Stretches of={units.length} first={first} go={(i) => setStretch(i)} />}
      <div class="strip-body">
        <canvas ref={canvas} aria-hidden="true" />
        <div
          class="units"
          ref={list}
          role="listbox"
          aria-label={`${label}: hover or move with the arrow keys, Enter pins`}
          aria-orientation="horizontal"
          onMouseMove={(event) => preview(unitAt(event))}
          onMouseLeave={() => leave(store)}
          onClick={(event) => togglePin(unitAt(event))}
          onKeyDown={onKeyDown}
          onFocusIn={(event) => preview(unitAt(event))}
          onFocusOut={() => leave(store)}
        >
          {shown.map((one, i) => (
            <Unit key={first + i} one={one} index={first + i} pinned={side === 'query' && pin === first + i} stop={i === Math.min(rover, shown.length - 1)} hidden={store.isHidden(first + i)} />
          ))}
        </div>
      </div>
    </section>
  );
}

interface UnitProps {
  one: UnitLabel;
  index: number;
  pinned: boolean;
  stop: boolean;
  /** From all that attend. */
  hidden: boolean;
}

function Unit({ one, index, pinned, stop, hidden }: UnitProps): JSX.Element {
  const text = visible(one.text);
  const kind = `unit${one.special ? ' special' : ''}${hidden ? ' hidden' : ''}`;
  return (
    <span data-unit={index} class={kind} role="option" dir="auto" aria-selected={pinned} aria-label={hidden ? `${text} (hidden)` : undefined} tabIndex={stop ? 0 : -1}>
      {text}
    </span>
  );
}

function Stretches({ of, first, go }: { of: number; first: number; go: (stretch: number) => void }): JSX.Element {
  const at = Math.floor(first / kStretch);
  const last = Math.floor((of - 1) / kStretch);
  return (
    <div class="stretches">
      <button disabled={at === 0} onClick={() => go(at - 1)}>
        ‹ earlier
      </button>
      <span class="number">
        {first} to {Math.min(of, first + kStretch) - 1} of {of}
      </span>
      <button disabled={at === last} onClick={() => go(at + 1)}>
        later ›
      </button>
      <label>
        go to{' '}
        <input type="number" min={0} max={of - 1} onChange={(event) => go(Math.floor(Number(event.currentTarget.value) / kStretch))} />
      </label>
    </div>
  );
}
