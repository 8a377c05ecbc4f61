package router

// randomly takes any fit backend.
type randomly struct{ source func() uint64 }

func (p randomly) pick(backends []*Backend, q query) *Backend { return draw(backends, &q, p.source) }
