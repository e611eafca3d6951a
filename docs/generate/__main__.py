"""Write the generated pages: python -m docs.generate (make docs)."""

from docs.generate.pages import PAGES, REFERENCE


def main() -> None:
    for name, make in PAGES.items():
        path = REFERENCE / name
        path.write_text(make())
        print(path)


if __name__ == "__main__":
    main()
