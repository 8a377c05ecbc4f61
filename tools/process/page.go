package process

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"xpyd/metrics/exposition"
)

// Page is the result of one scrape.
type Page = exposition.Page

// ReadPage reads a page.
func ReadPage(in io.Reader) (Page, error) { return exposition.Read(in) }

// PageOf reads the page of a port, given with its scheme, and then closes its connection.
func PageOf(ctx context.Context, url string) (Page, error) {
	text, err := Get(ctx, url+"/metrics")
	if err != nil {
		return Page{}, err
	}
	p, err := ReadPage(bytes.NewReader(text))
	if err != nil {
		return p, fmt.Errorf("%s: %w", url, err)
	}
	return p, nil
}
