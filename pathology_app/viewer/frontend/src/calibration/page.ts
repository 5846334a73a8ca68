// A page to check a screen by: what must be seen, and what to do where it is not. Nothing of it comes from a server.
import { box } from "../elements";
import type { Streamlit } from "../types";
import css from "./calibration.css";
import { fillButtons, gammaStripes, patchRow, rule } from "./drawings";
import { factRows, screenFacts, whenResized } from "./screen";
import { GREY_STEPS, HALF_LIGHT, NEAR_BLACK, NEAR_WHITE, stains } from "./values";

interface Section {
  title: string;
  content: HTMLElement[];
  seen: string;
  otherwise: string;
}

function sections(): Section[] {
  return [
    {
      title: "Black and white",
      content: [
        patchRow("Near black", NEAR_BLACK, "near", "#000000"),
        patchRow("Near white", NEAR_WHITE, "near", "#ffffff"),
      ],
      seen: "On black and on white at least four of the five squares: the fourth differs from its ground by 5 %. On a good screen all five.",
      otherwise: "Near black: less light in the room, or raise the monitor's brightness (black level). Near white: lower its contrast. Let it warm up for half an hour.",
    },
    {
      title: "Steps of grey",
      content: [patchRow("Steps of grey", GREY_STEPS, "steps")],
      seen: "Eighteen steps, each darker or lighter than its neighbour, and none with a tint.",
      otherwise: "A tint: set the monitor's white to 6500 K or sRGB, and switch off night light and reading modes. Steps that flow into each other: see black and white.",
    },
    {
      title: "Gamma and sharpness",
      content: [gammaStripes(HALF_LIGHT)],
      seen: "From two metres, or with eyes half closed, the square of 2.2 vanishes in the stripes; the others stay lighter or darker. From near by the stripes are even, without bands.",
      otherwise: "Another square vanishes: set the monitor's gamma to 2.2 or its mode to sRGB. Bands: set the browser's zoom to 100 %, and the system to the screen's own resolution.",
    },
    {
      title: "Colours of stains",
      content: stains().map(({ name, patches }) => box("stain", box("name", name), patchRow(name, patches, "stains"))),
      seen: "Five steps of each stain. The weakest DAB is brown, not grey or yellow; the strongest haematoxylin is blue, not black.",
      otherwise: "Choose the monitor's sRGB mode, or its measured profile in the system. With a colorimeter, measure the patches against the sRGB values below them.",
    },
    {
      title: "Evenness",
      content: [fillButtons()],
      seen: "The same grey from edge to edge, without spots, clouds or tinted corners; also when you move your head.",
      otherwise: "Clean the screen, and look at it straight. What remains is the screen's own: do not judge weak staining at such a place.",
    },
    {
      title: "Size",
      content: [rule()],
      seen: "A bank card held to the screen covers the box, and the rule is 100 mm long.",
      otherwise: "Move Fit until it does. Lengths and areas in the viewer are those on the glass; the size of the screen changes none of them.",
    },
  ];
}

function drawn({ title, content, seen, otherwise }: Section): HTMLElement {
  const [section, heading] = [document.createElement("section"), document.createElement("h2")];
  heading.textContent = title;
  section.append(heading, said("You should see", seen), ...content, said("If not", otherwise));
  return section;
}

function said(head: string, text: string): HTMLParagraphElement {
  const [line, strong] = [document.createElement("p"), document.createElement("strong")];
  strong.textContent = `${head}: `;
  line.append(strong, text);
  return line;
}

function screenSection(): HTMLElement {
  const [section, heading, table] = [document.createElement("section"), document.createElement("h2"), document.createElement("table")];
  heading.textContent = "This screen";
  table.setAttribute("aria-label", heading.textContent);
  const fill = (): void => {
    table.replaceChildren(...factRows(screenFacts()).map(factRow));
  };
  fill();
  whenResized(section, fill);
  section.append(heading, table);
  return section;
}

function factRow([name, value, advice]: [string, string, string]): HTMLTableRowElement {
  const [row, head] = [document.createElement("tr"), document.createElement("th")];
  [head.scope, head.textContent] = ["row", name];
  row.append(head);
  row.insertCell().textContent = value;
  row.insertCell().textContent = advice || "good";
  row.classList.toggle("amiss", advice !== "");
  return row;
}

const drawnIn = new WeakSet<Streamlit<unknown>["parentElement"]>();

export function calibration({ parentElement }: Streamlit<unknown>): void {
  if (drawnIn.has(parentElement)) {
    return;
  }
  drawnIn.add(parentElement);
  const style = document.createElement("style");
  style.textContent = css;
  parentElement.append(style, box("calibration", screenSection(), ...sections().map(drawn)));
}
