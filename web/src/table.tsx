// A table that is sorted by its headings, filtered by a field, and shown a page at a time.

import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";

export interface Column<Row> {
  name: string;
  // What is shown, and what it is sorted by.
  show: (row: Row, key: string) => ComponentChildren;
  sort?: (row: Row, key: string) => string | number;
  right?: boolean;
  // Never broken into lines.
  short?: boolean;
  // Left out on narrow screens.
  minor?: boolean;
  // Shown below the first column on narrow screens, where a sentence has no room beside others.
  under?: boolean;
}

interface Props<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Record<string, Row> | undefined;
  // What the filter searches; none: no filter.
  text?: (row: Row, key: string) => string;
  empty: string;
  // The column and direction that it is sorted by at first; none: as the rows come.
  by?: string;
  descending?: boolean;
}

const PAGE = 100;

export function Table<Row extends object>(props: Props<Row>) {
  const { caption, columns, rows, text, empty } = props;
  const [by, setBy] = useState(props.by ?? "");
  const [down, setDown] = useState(props.descending ?? false);
  const [wanted, setWanted] = useState("");
  const [page, setPage] = useState(0);
  const all = Object.entries(rows ?? {});
  const found = useMemo(() => {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = words.length && text
      ? all.filter(([key, row]) => {
          const there = text(row, key).toLowerCase();
          return words.every((word) => there.includes(word));
        })
      : [...all];
    const sort = columns.find((column) => column.name === by)?.sort;
    if (sort) kept.sort(([a, x], [b, y]) => compare(sort(x, a), sort(y, b)) || compare(a, b));
    return down ? kept.reverse() : kept;
  }, [rows, wanted, by, down, columns]);
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const at = Math.min(page, pages - 1);
  const shown = found.slice(at * PAGE, (at + 1) * PAGE);

  function turn(column: Column<Row>): void {
    const first = column.right ?? false;
    if (by !== column.name) [setBy(column.name), setDown(first)];
    else if (down === first) setDown(!first);
    else [setBy(""), setDown(false)];
  }

  return (
    <div class="table">
      {text && all.length > 8 && (
        <div class="tools">
          <label>
            Filter <input type="search" value={wanted} onInput={(e) => (setWanted(e.currentTarget.value), setPage(0))} />
          </label>
          <span class="count">{found.length === all.length ? all.length : `${found.length} of ${all.length}`}</span>
        </div>
      )}
      <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="unseen">{caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <th
                  scope="col"
                  class={classes(column)}
                  aria-sort={by !== column.name ? undefined : down ? "descending" : "ascending"}
                >
                  {column.sort ? (
                    <button type="button" class="sort" onClick={() => turn(column)}>
                      {column.name}
                      <span aria-hidden="true">{by === column.name ? (down ? " ▾" : " ▴") : ""}</span>
                    </button>
                  ) : (
                    column.name
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map(([key, row]) => (
              <Cells key={key} name={key} row={row} columns={columns as Column<object>[]} />
            ))}
            {!shown.length && (
              <tr>
                <td colSpan={columns.length} class="empty">{all.length ? "Nothing matches the filter." : empty}</td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      {pages > 1 && (
        <nav class="pages" aria-label={`Pages of ${caption}`}>
          <button type="button" disabled={at === 0} onClick={() => setPage(at - 1)}>Previous</button>
          <span>{at * PAGE + 1} to {at * PAGE + shown.length} of {found.length}</span>
          <button type="button" disabled={at === pages - 1} onClick={() => setPage(at + 1)}>Next</button>
        </nav>
      )}
    </div>
  );
}

// Drawn again only if its row has changed.
const Cells = memo(function Cells({ name, row, columns }: { name: string; row: object; columns: Column<object>[] }) {
  return (
    <tr>
      {columns.map((column, index) =>
        index === 0 ? (
          <th scope="row" class={classes(column)}>
            {column.show(row, name)}
            {columns.map((one) => one.under && <div class="under">{one.show(row, name)}</div>)}
          </th>
        ) : (
          <td class={classes(column)}>{column.show(row, name)}</td>
        ),
      )}
    </tr>
  );
});

function classes(column: Column<never> | Column<any>): string {
  return [column.right && "right", (column.minor || column.under) && "minor", column.short && "short"].filter(Boolean).join(" ");
}

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
