// What the buttons of the section "Counts" do.
import type { CountClasses } from "./classes";
import type { Counter } from "./counter";
import type { CountPanelActions } from "./panel";

export interface CountingHost {
  takeTool(): void;
  /** Show a count on the slide. */
  show(id: string): void;
  colourOf(name: string): string;
  say(text: string): void;
  changed(): void;
}

export function countActions(counter: () => Counter, classes: CountClasses, host: CountingHost): CountPanelActions {
  return {
    begin: (shape) => {
      counter().begin(shape);
      host.takeTool();
    },
    goOn: (id) => {
      counter().activate(id);
      host.takeTool();
      host.show(id);
    },
    chooseClass: (number) => {
      classes.choose(number);
      host.changed();
    },
    useClasses: (names) => {
      classes.use(names);
      host.changed();
    },
    addClass: (name) => {
      if (!classes.add(name)) {
        host.say("There are nine classes already, one for each key.");
      }
      host.changed();
    },
    colourOf: (name) => host.colourOf(name),
  };
}
