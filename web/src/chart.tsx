// Lines over time, by uPlot, with the newest values in a table for those who do not see them.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string;
  colour: string; // A CSS variable.
  fill?: boolean;
  dash?: boolean;
  values: (number | null)[];
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  show: (value: number) => string;
  // The scale reaches at least so far.
  top?: number;
  binary?: boolean;
}

const HEIGHT = 160;

export function Chart(props: Props) {
  const { title, times, lines, show } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.name).join();
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const box = place.current!;
    function draw(): void {
      plot.current?.destroy();
      plot.current = new uPlot(options(box, props), data, box);
    }
    draw();
    const watch = new ResizeObserver(() => {
      if (plot.current && Math.abs(plot.current.width - box.clientWidth) > 1)
        plot.current.setSize({ width: box.clientWidth, height: HEIGHT });
    });
    watch.observe(box);
    addEventListener("rgpu-theme", draw);
    return () => {
      watch.disconnect();
      removeEventListener("rgpu-theme", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names, props.top]);

  useEffect(() => plot.current?.setData(data));

  const newest = lines.map((line) => {
    const value = line.values[line.values.length - 1];
    return { name: line.name, value: value == null ? "unknown" : show(value) };
  });
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <ul class="legend">
        {lines.map((line, index) => (
          <li>
            <svg width="14" height="10" aria-hidden="true">
              <line x1="0" x2="14" y1="5" y2="5" class={`stroke ${line.colour}`} stroke-dasharray={line.dash ? "4 2" : undefined} />
            </svg>{" "}
            {line.name} <b>{newest[index].value}</b>
          </li>
        ))}
      </ul>
      <div ref={place} class="plot" role="img" aria-label={`${title}. Now: ${newest.map((n) => `${n.name} ${n.value}`).join(", ")}`} />
    </figure>
  );
}

// Steps of an axis of bytes.
const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);

function options(box: HTMLElement, { lines, show, top, binary }: Props): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour("soft"),
    grid: { stroke: colour("rule"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: box.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, Math.max(top ?? 0, max * 1.05, 1)] } },
    axes: [
      { ...axis, values: "{HH}:{mm}:{ss}", space: 80, size: 26 },
      { ...axis, size: 66, ...(binary ? { incrs: POWERS } : {}), values: (_u, values) => values.map((value) => show(value)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.colour),
        fill: line.fill ? `${colour(line.colour)}33` : undefined,
        width: line.dash ? 1.5 : 2,
        dash: line.dash ? [5, 4] : undefined,
        points: { show: false },
      })),
    ],
  };
}
