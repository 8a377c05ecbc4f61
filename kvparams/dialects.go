package kvparams

// Dialects are the dialects of one process: the usual one, and those that backends name. They never
// change.
type Dialects struct {
	usual Dialect
	all   []Dialect
}

// Dialects returns the dialects of a process, with usual for engines that name no connector.
func (u Reuse) Dialects(usual Dialect) *Dialects {
	ds := &Dialects{usual: usual}
	for _, name := range Names() {
		d, _ := u.Lookup(name)
		ds.all = append(ds.all, d)
	}
	return ds
}

// Of returns the dialect of engines with the connector, or the usual one if it is empty. The name has been
// validated.
func (ds *Dialects) Of(connector string) Dialect {
	if connector == "" {
		return ds.usual
	}
	for _, d := range ds.all {
		if d.Name() == connector {
			return d
		}
	}
	panic("BUG: a connector that validation let pass: " + connector)
}
