// What components share: drawing anew when the store tells, canvases as large as their box, text widths, the theme.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';
import { onThemeChange, readTheme, type Theme } from './colour';
import { kNowhere, type Store } from './store';

/** Renders the component again whenever the store tells. */
export function useStore(store: Store): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const drawn = store.version;
  useLayoutEffect(() => {
    if (store.version !== drawn) again(0);  // a kept file answers so soon that all is told before anyone listens
    return store.listen(() => again(0));
  }, [store]);
}

export function useTheme(): Theme {
  const [theme, set] = useState(readTheme);
  useEffect(() => onThemeChange(() => set(readTheme())), []);
  return theme;
}

/** The size of an element's box, as it changes. */
export function useSize(ref: RefObject<HTMLElement>): { width: number; height: number } {
  const [size, set] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const read = (): void => set({ width: element.clientWidth, height: element.clientHeight });
    read();
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return size;
}

/** A canvas of that size in CSS pixels, cleared and ready to be drawn on in them. */
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, w, h);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const rulers = new Map<string, CanvasRenderingContext2D>();

/** The width of a text in a font. */
export function widthIn(font: string): (text: string, size: number) => number {
  let ruler = rulers.get(font);
  if (!ruler) {
    ruler = document.createElement('canvas').getContext('2d') as CanvasRenderingContext2D;
    rulers.set(font, ruler);
  }
  return (text, size) => {
    ruler.font = `400 ${size}px ${font}`;
    return ruler.measureText(text).width;
  };
}

/** Calls `draw` once per frame at most, when what is hovered changes. */
export function useHoverDrawing(store: Store, draw: () => void): void {
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    let asked = 0;
    const stop = store.hover.listen(() => {
      asked ||= requestAnimationFrame(() => {
        asked = 0;
        latest.current();
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(asked);
    };
  }, [store]);
}

export function leave(store: Store): void {
  store.hover.set(kNowhere);
}
