replace(convert_from(body, 'UTF8'), '\u0000', '\u0001')::json
