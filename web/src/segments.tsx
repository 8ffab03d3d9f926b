// A row of choices of which one holds: radio buttons that look like a segmented control.
import type { JSX } from 'preact';

export interface Choice<T extends string> {
  value: T;
  name: string;
  title?: string;
}

interface SegmentsProps<T extends string> {
  label: string;
  choices: Choice<T>[];
  value: T;
  onChange: (value: T) => void;
}

export function Segments<T extends string>({ label, choices, value, onChange }: SegmentsProps<T>): JSX.Element {
  return (
    <fieldset class="segments">
      <legend class="unseen">{label}</legend>
      {choices.map((choice) => (
        <label key={choice.value} title={choice.title}>
          <input type="radio" name={label} checked={choice.value === value} onChange={() => onChange(choice.value)} />
          <span>{choice.name}</span>
        </label>
      ))}
    </fieldset>
  );
}
