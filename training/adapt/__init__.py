"""`lattemix-train adapt`: adapt a head to labelled pairs or triplets."""
