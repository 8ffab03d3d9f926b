// Zooming and panning of a square picture of cells, by d3-zoom (wheel, drag, pinch) and by keys (+ - 0, arrows once zoomed); the address keeps where it is.
import { select } from 'd3-selection';
import { zoom as zoomBehaviour, zoomIdentity, zoomTransform, type D3ZoomEvent, type ZoomBehavior } from 'd3-zoom';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';
import type { MatrixLayout, Zoom } from './matrix_scene';
import type { Store } from './store';

const round = (n: number): number => Math.round(n * 1000) / 1000;

/** How an arrow moves the picture under its frame, as a share of the frame; from then on the arrow chooses no other word or head. */
function panBy(key: string): [number, number] | undefined {
  const step = 0.2;
  const moves: Record<string, [number, number]> = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  return moves[key];
}

/** The zoom in view; wheel, drag, pinch and + - 0 and arrows on the element change it. */
export function useZoom(store: Store, frame: RefObject<HTMLElement>, layout: MatrixLayout, rows: number, columns: number): Zoom {
  const [k, query, key] = store.state.zoom;
  const [zoom, set] = useState<Zoom>({ k, query, key });
  const behaviour = useRef<ZoomBehavior<HTMLElement, unknown> | null>(null);
  const most = Math.max(1, Math.max(rows, columns) / 4);
  useEffect(() => {
    const element = frame.current;
    if (!element || layout.cell <= 0) return;
    const { left, top, width, height } = layout;
    let setting = true;  // the address's zoom is being taken over: it need not be written back
    const target = select<HTMLElement, unknown>(element);
    const made = zoomBehaviour<HTMLElement, unknown>()
      .extent([[left, top], [left + width, top + height]])
      .translateExtent([[left, top], [left + width, top + height]])
      .scaleExtent([1, most])
      .on('zoom', (event: D3ZoomEvent<HTMLElement, unknown>) => {
        const { k: factor, x, y } = event.transform;
        const cell = layout.cell * factor;
        set({ k: factor, query: (top - (top * factor + y)) / cell, key: (left - (left * factor + x)) / cell });
      })
      .on('end', (event: D3ZoomEvent<HTMLElement, unknown>) => {
        const { k: factor, x, y } = event.transform;
        const cell = layout.cell * factor;
        const at: [number, number, number] = [round(factor), round((top - (top * factor + y)) / cell), round((left - (left * factor + x)) / cell)];
        if (!setting && at.join() !== store.state.zoom.join()) store.update({ zoom: at }, 'replace');
      });
    behaviour.current = made;
    target.call(made).on('dblclick.zoom', null);
    const cell = layout.cell * k;
    target.call(made.transform, zoomIdentity.translate(left - left * k - key * cell, top - top * k - query * cell).scale(k));
    setting = false;
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const factor = zoomTransform(element).k;
      const to = panBy(event.key);
      if (to && factor > 1) target.call(made.translateBy, (to[0] * width) / factor, (to[1] * height) / factor);
      else if (event.key === '+' || event.key === '=') target.call(made.scaleBy, 1.5);
      else if (event.key === '-') target.call(made.scaleBy, 1 / 1.5);
      else if (event.key === '0') target.call(made.transform, zoomIdentity);
      else return;
      event.preventDefault();
    };
    element.addEventListener('keydown', onKey);
    return () => {
      target.on('.zoom', null);
      element.removeEventListener('keydown', onKey);
    };
  }, [layout, most]);
  return useMemo(() => ({ k: zoom.k, query: Math.max(0, zoom.query), key: Math.max(0, zoom.key) }), [zoom]);
}
