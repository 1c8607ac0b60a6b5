"""The device agent: joins the server to a cluster, whose manager then asks it for leases."""
