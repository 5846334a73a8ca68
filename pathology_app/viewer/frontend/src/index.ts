// Entry of the Streamlit component. Streamlit calls it again with new data on every rerun.
import { exposeHook } from "./hook";
import { SlideViewer } from "./slide_viewer";
import css from "./style.css";
import type { StreamlitComponent } from "./types";

const viewers = new WeakMap<object, SlideViewer>();

function createViewer({ data, parentElement, setTriggerValue }: StreamlitComponent): SlideViewer {
  const host = document.createElement("div");
  host.className = "gemslide-viewer";
  const style = document.createElement("style");
  style.textContent = css;
  host.append(style);
  parentElement.append(host);
  const viewer = new SlideViewer(host, data, setTriggerValue);
  viewers.set(parentElement, viewer);
  exposeHook(viewer);
  return viewer;
}

export default function mount(component: StreamlitComponent): () => void {
  const { data, parentElement, setTriggerValue } = component;
  let viewer = viewers.get(parentElement);
  if (viewer && viewer.data.slide.tile_url === data.slide.tile_url) {
    viewer.update(data, setTriggerValue);
  } else {
    viewer?.destroy();
    viewer = createViewer(component);
  }
  return () => {
    // Streamlit may call this between two reruns too: only a viewer that has left the page ends.
    if (!parentElement.isConnected) {
      viewers.get(parentElement)?.destroy();
      viewers.delete(parentElement);
    }
  };
}
