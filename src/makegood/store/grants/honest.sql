(:body ->> 'kind') = kind
